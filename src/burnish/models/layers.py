"""The per-layer record of a compression: one row a linear layer, kept through a stop and a resume."""

from __future__ import annotations

from typing import Any

from burnish.core.files import write_json
from burnish.core.journal import Journal
from burnish.core.run import Run
from burnish.nn.site import Site


class LayerLog:
    """Writes ``layers.json`` into the run folder: errors, damping and notes of each layer.

    Args:
        run: The run; rows that an earlier process wrote into it are kept.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._journal = Journal(run.folder / "layers.jsonl")

    def add(self, site: Site, bits: int, **figures: Any) -> None:
        """Record one layer; an unusual note also becomes an event, and so does calibration that is too short for it."""
        seen, width = figures.get("tokens"), site.linear.in_features
        notes = [figures.get("note", "")]
        if seen is not None and seen < width:
            notes.append(f"{seen} calibration tokens for {width} inputs: the Hessian has at most that rank")
        if not site.linear.weight.any():
            notes.append("all its weights are zero")
        if any(notes):
            figures["note"] = "; ".join(filter(None, notes))
        block = int("".join(c if c.isdigit() else " " for c in site.name).split()[0])
        self._journal.add(site.name, {"block": block, "site": site.name, "role": site.role, "bits": bits, **figures})
        if figures.get("note"):
            self.run.event("layer-note", site=site.name, note=figures["note"])

    def close(self) -> list[dict[str, Any]]:
        """Write the file; returns its rows, first block first."""
        rows = sorted((self._journal[key] for key in self._journal), key=lambda row: row["block"])
        write_json(self.run.folder / "layers.json", rows)
        notes = sum(bool(row.get("note")) for row in rows)
        if notes:
            self.run.metric(layers_with_notes=notes)
        return rows
