"""Whether what a string names can be a language model, without asking or loading it."""

from __future__ import annotations

from pathlib import Path

from burnish.core.errors import BadInput
from burnish.core.extras import missing


def check_llm(source: str) -> None:
    """Refuse a name that `burnish.llm.connect` cannot use, as far as that is seen from outside.

    Raises:
        BadInput: a recording that is not there, or a model of this process that is not.
    """
    if source.startswith("replay:"):
        file = source.removeprefix("replay:").partition("#")[0]
        if not Path(file).is_file():
            raise BadInput(f"there is no recording {file!r}", "give replay:FILE.jsonl with a file that is there")
    elif not source.startswith(("http://", "https://")) and not missing("models"):
        from burnish.models.named import check_model

        check_model(source)
