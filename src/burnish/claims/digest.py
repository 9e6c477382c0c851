"""A digest of the code that a result depends on: it changes when the code does, and not with comments or layout.

The digest of a module covers the module and everything in its own package that it imports, directly or through others.
Sources are parsed, never imported, so this needs none of the packages that the code needs.

A package's ``__init__`` counts where names are taken from it, not where one of its modules is: importing a module runs the
packages above it, but what they gather there is not what the module uses.

Some modules are left out although others import them: ``burnish`` itself and ``burnish.catalogue`` are tables of names,
which change whenever a method is added, and the modules that a result used are covered by their own digests; and the
plumbing of `PLUMBING` decides no figure.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from burnish.core.errors import BadInput

NAME_TABLES = frozenset({"burnish", "burnish.catalogue"})
PLUMBING = frozenset({"burnish.core.errors", "burnish.core.extras", "burnish.core.files", "burnish.core.progress"})
"""Modules that say things and write files, and decide no figure."""

# Fields of the syntax tree that are no code: how a name is used follows from where it stands, and the kind of a string
# literal (u"") and type comments do nothing.
_NO_CODE = frozenset({"ctx", "kind", "type_comment", "type_ignores"})


def digest(module: str) -> str:
    """The SHA-256, in hexadecimal, of the code of `module` and of all that it imports of its own package.

    Raises:
        BadInput: there is no source of that module.
    """
    total = hashlib.sha256()
    for name in modules(module):
        total.update(f"{name}\0{_parsed(name, _source(name)).own}\0".encode())
    return total.hexdigest()


def modules(module: str) -> list[str]:
    """Names of the modules that the digest of `module` covers, sorted; `module` is one of them.

    Raises:
        BadInput: there is no source of that module.
    """
    if find(module) is None:
        raise BadInput(f"there is no source file of the module {module!r}", "give the dotted name of a Python module")
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or name in NAME_TABLES | PLUMBING:
            continue
        found.add(name)
        waiting += _parsed(name, _source(name)).imports
    return sorted(found | {module})


def find(module: str) -> Path | None:
    """The source file of `module`, found without importing it or its parents; None if there is none."""
    top, *rest = module.split(".")
    try:
        spec = find_spec(top)
    except ValueError:
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations is None:
        return Path(spec.origin) if not rest and spec.origin and spec.origin.endswith(".py") else None
    for folder in spec.submodule_search_locations:
        place = Path(folder, *rest)
        for path in (place / "__init__.py", place.with_suffix(".py") if rest else place / "__init__.py"):
            if path.is_file():
                return path
    return None


def normal_form(source: str) -> str:
    """The code of `source` as text that comments, docstrings and layout do not change.

    It is the syntax tree, each node with its fields that are not empty, so that fields which newer versions of Python
    add (and which are empty in older code) change nothing either.
    """
    return _text(ast.parse(source))


def _source(module: str) -> str:
    path = find(module)
    return path.read_text(encoding="utf-8") if path else ""


@dataclass(frozen=True)
class _Parsed:
    """What one module's source comes to."""

    own: str
    """Digest of its code alone."""
    imports: tuple[str, ...]
    """Modules of its own package that it imports."""


@cache
def _parsed(module: str, source: str) -> _Parsed:
    """Imports inside functions count, and so do those for type checkers: what a function is given, it may call."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise BadInput(f"the source of {module} does not parse: {error}") from None
    path = find(module)
    package = module if path is not None and path.name == "__init__.py" else module.rpartition(".")[0]
    top = module.partition(".")[0]
    named = {name for name in _imported_names(tree, package) if name.partition(".")[0] == top}
    imports = tuple(sorted(name for name in named if find(name) is not None))
    return _Parsed(hashlib.sha256(_text(tree).encode()).hexdigest(), imports)


def _imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Dotted names that may be modules: for ``from a import b``, ``a.b`` if that is a module, else ``a``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            inner = {alias.name: f"{base}.{alias.name}" for alias in node.names}
            yield from (name if find(name) is not None else base for name in inner.values())


def _text(node: object) -> str:
    if isinstance(node, ast.AST):
        fields = []
        for name in sorted(set(node._fields) - _NO_CODE):
            value = getattr(node, name, None)
            if isinstance(value, list):
                value = [part for part in value if not _is_docstring(part) and not _is_padding(node, part)]
            if value is not None and value != []:
                fields.append(f"{name}={_text(value)}")
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(map(_text, node))}]"
    return f"{type(node).__name__}:{node!r}"


def _is_docstring(node: object) -> bool:
    """Whether a statement is a string by itself: it documents what stands around it, and does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_padding(parent: ast.AST, node: object) -> bool:
    """Whether a node is an empty piece of an f-string: some versions of Python put them beside a nested format."""
    return isinstance(parent, ast.JoinedStr) and isinstance(node, ast.Constant) and node.value == ""
