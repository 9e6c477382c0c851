"""Committed evidence: one JSON file for each claim, in burnish itself, with a word on whether it still describes the code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from burnish.core.claim import Evidence, Frozen
from burnish.core.errors import BadInput, Mismatch
from burnish.core.files import write_text
from burnish.core.method import faults

FOLDER = Path(__file__).parents[1] / "evidence"
"""Where committed evidence lies."""


class Freshness(Frozen):
    """Whether evidence still describes the code."""

    state: Literal["fresh", "stale", "none"]
    """"none": there is no evidence."""
    changed: tuple[str, ...] = ()
    """What changed since: methods, modules, or the declaration of the claim."""


def read(claim: str, folder: Path = FOLDER) -> Evidence | None:
    """The committed evidence of a claim, or None.

    Raises:
        BadInput: the file is damaged.
    """
    path = folder / f"{claim}.json"
    return read_file(path) if path.is_file() else None


def read_file(path: Path) -> Evidence:
    """Evidence from a file, such as the ``evidence.json`` of a run folder.

    Raises:
        BadInput: there is no such file, or it is damaged.
    """
    try:
        return Evidence.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"there is no evidence at {path}", "`burnish claim NAME` makes some") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text", "measure the claim again") from None
    except ValidationError as error:
        raise BadInput.of(f"{path} is not evidence", faults(error), "measure the claim again") from None


def write(evidence: Evidence, path: Path) -> Path:
    """Write evidence to a file, whole or not at all."""
    write_text(path, evidence.model_dump_json(indent=1) + "\n")
    return path


def freshness(evidence: Evidence | None, now: Mapping[str, str]) -> Freshness:
    """Compare the digests in `evidence` with those of the code as it is now (`Claim.digests`)."""
    if evidence is None:
        return Freshness(state="none")
    then = evidence.digests
    changed = tuple(sorted(name for name in {*then, *now} if then.get(name) != now.get(name)))
    return Freshness(state="stale" if changed else "fresh", changed=changed)


def commit(evidence: Evidence, *, default_model: str, now: Mapping[str, str], folder: Path = FOLDER) -> Path:
    """Make `evidence` the committed evidence of its claim (for maintainers).

    Args:
        evidence: Of the full scale, on the claim's default model, measured with the code as it is.
        default_model: The claim's.
        now: Digests of the code as it is (`Claim.digests`).
        folder: Where committed evidence lies.

    Raises:
        BadInput: it is of a smaller scale or of another model.
        Mismatch: the code has changed since it was measured.
    """
    wrong = []
    if evidence.scale != "full":
        wrong.append(f"scale: {evidence.scale}, and only the full scale decides the claim")
    if evidence.model != default_model:
        wrong.append(f"model: {evidence.model}, and the claim's is {default_model}")
    if wrong:
        raise BadInput.of(
            f"this evidence for {evidence.claim!r} is not the claim's own",
            wrong,
            f"burnish claim {evidence.claim} --keep",
        )
    found = freshness(evidence, now)
    if found.state != "fresh":
        raise Mismatch(
            f"the code has changed since this evidence for {evidence.claim!r} was measured: {', '.join(found.changed)}",
            "measure the claim again",
        )
    return write(evidence, folder / f"{evidence.claim}.json")
