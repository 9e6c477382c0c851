"""Claims: a paper's headline comparison, run again at the user's scale, with a verdict and the evidence for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from burnish.claims.base import Claim, Measured, Scale
from burnish.claims.plan import Plan
from burnish.claims.plan import plan as _plan
from burnish.claims.store import Freshness, freshness, read, write
from burnish.claims.store import commit as _commit
from burnish.core.claim import Evidence, Frozen
from burnish.core.errors import BadInput
from burnish.core.run import Run, slug


class EvidenceRow(Frozen):
    """One claim's line in the table of claims."""

    claim: str
    title: str
    sentence: str
    paper: str
    """What the paper reports."""
    ours: str
    """What was found here; empty without evidence."""
    verdict: str
    """That of the evidence, or "not run"."""
    freshness: Freshness
    command: str


def load(name: str) -> Claim:
    """A claim by name.

    Raises:
        UnknownName: there is no such claim; offers near ones.
    """
    from burnish import catalogue

    found = catalogue.claim(name)
    if not isinstance(found, Claim):
        raise BadInput(f"{catalogue.CLAIMS[name]} is no claim", "this is a fault of burnish: please report it")
    return found


def names() -> list[str]:
    """Names of all claims."""
    from burnish import catalogue

    return list(catalogue.CLAIMS)


def run(
    name: str,
    model: str | None = None,
    *,
    scale: Scale = "full",
    out: str | Path | None = None,
    data: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Evidence:
    """Measure a claim and write ``evidence.json`` to the run's folder. The same call goes on where it was stopped.

    Args:
        name: The claim.
        model: Any model that burnish loads; the claim's own by default. Some claims are about no model.
        scale: "full" is the comparison that the claim is about; see `Scale`.
        out: The run's folder; ``runs/claim-<name>-<scale>`` by default, with the model's name where it is not the
            claim's own.
        data: A folder that holds data sets, each in a folder of its name; it stands in for ``$BURNISH_DATA``.
        device: Where models are put; it is not part of what is asked.
        dtype: In which precision they are loaded; it is.

    Raises:
        BadInput: a model for a claim that is about none, the data are not at hand, the folder holds another run, or a setting does not fit the model.
    """
    claim, model = _asked(name, model, scale)
    default = f"claim-{name}-{scale}" + (f"-{Path(model).name}" if model != claim.default_model else "")
    folder = Path(out) if out is not None else Path("runs") / slug(default)
    request = {"claim": name, "model": model, "scale": scale} | ({} if dtype == "auto" else {"dtype": dtype})
    with _data_in(data), Run(folder, request) as part:
        digests = claim.digests()
        measured = claim.measure(model, part, scale, device=device, dtype=dtype)
        _write_items(measured, claim, part)
        part.metric(items=len({row["item_id"] for row in measured.rows}))
        minutes = json.loads((part.folder / "run.json").read_text(encoding="utf-8"))["minutes"]
        evidence = claim.collect(measured, model=model, scale=scale, minutes=minutes, digests=digests)
        write(evidence, part.folder / "evidence.json")
        held = sum(finding.verdict == "holds" for finding in evidence.findings)
        part.metric(verdict=evidence.verdict, criteria_held=held, criteria=len(evidence.findings))
    return evidence


def plan(name: str, model: str | None = None, *, scale: Scale = "full") -> Plan:
    """What `run` would measure, and about how long it takes; nothing is loaded.

    Raises:
        BadInput: a model for a claim that is about none, or settings that do not fit.
    """
    claim, model = _asked(name, model, scale)
    return _plan(claim, model, scale)


def _asked(name: str, model: str | None, scale: Scale) -> tuple[Claim, str]:
    """The claim, and the model that is meant, which is empty for a claim about none."""
    claim = load(name)
    claim.asked(scale)
    if model and not claim.default_model:
        raise BadInput(f"the claim {name!r} asks nothing of a model", "leave the model out")
    return claim, model or claim.default_model


def commit(evidence: Evidence) -> Path:
    """Make `evidence` the one that burnish comes with (for maintainers).

    Raises:
        BadInput: it is of a smaller scale or of another model than the claim's own.
        Mismatch: the code has changed since it was measured.
    """
    claim = load(evidence.claim)
    return _commit(evidence, default_model=claim.default_model, now=claim.digests())


def evidence_rows() -> list[EvidenceRow]:
    """Every claim with the evidence that burnish comes with, and whether that still describes the code."""
    rows = []
    for name in names():
        claim, evidence = load(name), read(name)
        rows.append(
            EvidenceRow(
                claim=name,
                title=claim.title,
                sentence=claim.sentence,
                paper=claim.theirs(),
                ours=claim.ours(evidence) if evidence else "",
                verdict=evidence.verdict if evidence else "not run",
                freshness=freshness(evidence, claim.digests() if evidence else {}),
                command=claim.command(claim.default_model, "full"),
            )
        )
    return rows


def _write_items(measured: Measured, claim: Claim, part: Run) -> None:
    """Write all rows as ``items.parquet``; what an arm does not depend on, or lacks, is null there."""
    columns = list(dict.fromkeys(["item_id", "model", *(name for row in measured.rows for name in row)]))
    named = (
        {**row, "model": claim.label(row["arm"], {cell: row[cell] for cell in claim.cells if cell in row})}
        for row in measured.rows
    )
    part.items([{column: row.get(column) for column in columns} for row in named])


@contextmanager
def _data_in(folder: str | Path | None) -> Iterator[None]:
    """Let readers find data sets in `folder` for a while."""
    if folder is None:
        yield
        return
    if not Path(folder).is_dir():
        raise BadInput(f"there is no folder {folder}", "give the folder that holds the data sets")
    before = os.environ.get("BURNISH_DATA")
    os.environ["BURNISH_DATA"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["BURNISH_DATA"]
        else:
            os.environ["BURNISH_DATA"] = before
