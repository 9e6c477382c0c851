"""Python code in README.md and docs/ is run as written, in an empty folder."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


def enter(namespace: dict[str, Any]) -> None:
    """Before a document's first example."""
    namespace["_started_in"], namespace["_scratch"] = os.getcwd(), tempfile.TemporaryDirectory()
    os.chdir(namespace["_scratch"].name)


def leave(namespace: dict[str, Any]) -> None:
    """After its last."""
    os.chdir(namespace["_started_in"])
    namespace["_scratch"].cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md"], setup=enter, teardown=leave
).pytest()
