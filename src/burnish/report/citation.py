"""Which papers the methods of a run come from, read off their source files without importing them (or torch)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

import burnish
from burnish.catalogue import CLAIMS, find
from burnish.core.errors import UnknownName
from burnish.core.method import Paper


def papers(names: Iterable[str]) -> list[Paper]:
    """The papers of methods and claims of burnish's own, each once; names that are neither are passed over."""
    found: dict[str, Paper] = {}
    for name in names:
        for target in _targets(name):
            for paper in _papers_in(target):
                found.setdefault(paper.title.casefold(), paper)
    return list(found.values())


def _targets(name: str) -> list[str]:
    targets = [CLAIMS[name]] if name in CLAIMS else []
    try:
        entry = find(name)
    except UnknownName:
        return targets
    return [*targets, entry.target] if entry.package == "burnish" else targets


def _papers_in(target: str) -> list[Paper]:
    """Every ``Paper(...)`` with literal arguments in the file of "module:name"."""
    path = Path(burnish.__file__).parents[1].joinpath(*target.partition(":")[0].split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Paper":
            try:
                values = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
                found.append(Paper.model_validate(values))
            except (ValueError, ValidationError):
                continue
    return found
