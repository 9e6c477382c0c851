"""Text to work on: readers, the built-in corpus, token windows, and a tiny model that is really trained.

The functions below are imported when they are first used, so ``import burnish.data`` is quick. Those whose name is
also their file's are imported from there: ``from burnish.data.windows import windows``, ``from burnish.data.corpus
import corpus``.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burnish.data.corpus import corpus_id as corpus_id
    from burnish.data.files import save as save
    from burnish.data.text import provenance as provenance
    from burnish.data.text import read as read
    from burnish.data.wikitext import detokenize as detokenize

TINY = Path(__file__).with_name("tiny")
"""Folder of the tiny Llama: an ordinary Hugging Face model folder. Use it for mechanics, never for rankings."""

_HOMES = {"read": "text", "provenance": "text", "save": "files", "detokenize": "wikitext", "corpus_id": "corpus"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'burnish.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"burnish.data.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
