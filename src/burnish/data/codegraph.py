"""What Python files define and use, as a graph: the map by which a judge finds its way in a workspace.

Tree-sitter reads files that do not parse as far as they go. Nodes are files and definitions; edges say that a file
*contains* a definition, and that a piece of code *uses* one. A name that is defined in many places stands for none of
them, so `__init__` or `main` joins nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from burnish.data.workspace import Refused, Workspace

if TYPE_CHECKING:
    import networkx as nx

MOST_BYTES = 2**20
"""Of a source file; what is larger was generated."""
MOST_DEFINERS = 5
"""Places that may define a name for a use of it to count."""

_DEFINITIONS = """
(class_definition name: (identifier) @class)
(function_definition name: (identifier) @function)
"""
_USES = """
(call function: (identifier) @use)
(call function: (attribute attribute: (identifier) @use))
(class_definition superclasses: (argument_list (identifier) @use))
(decorator (identifier) @use)
"""


@dataclass(frozen=True, slots=True)
class Tag:
    """A class or function that is defined, or a name that is used."""

    path: str
    name: str
    kind: Literal["class", "function", "use"]
    line: int
    """From 1."""
    end: int
    """The last line of a definition; of a use, its line."""

    @property
    def key(self) -> str:
        """The name of a definition's node."""
        return f"{self.path}::{self.name}:{self.line}"


@dataclass(frozen=True)
class CodeGraph:
    """Tags of every Python file, and the graph that they make."""

    tags: tuple[Tag, ...]
    graph: nx.MultiDiGraph[Any]
    problems: dict[str, str]
    """Path to why a file was not looked into."""

    def definitions(self) -> list[Tag]:
        """What is defined, by file and line."""
        return [tag for tag in self.tags if tag.kind != "use"]

    def outline(self) -> dict[str, str]:
        """Path to the names that the file defines, e.g. for a tree of files."""
        names: dict[str, list[str]] = defaultdict(list)
        for tag in self.definitions():
            names[tag.path].append(f"class {tag.name}" if tag.kind == "class" else tag.name)
        return {path: ", ".join(found[:12]) + (", …" if len(found) > 12 else "") for path, found in names.items()}

    def users(self, tag: Tag) -> list[str]:
        """Files whose code uses a definition."""
        return sorted(
            {source.partition("::")[0] for source, _, kind in self.graph.in_edges(tag.key, "kind") if kind == "uses"}
        )


def code_graph(workspace: Workspace) -> CodeGraph:
    """Read every Python file of a workspace."""
    import networkx as nx
    import tree_sitter_python
    from tree_sitter import Language, Parser, Query, QueryCursor

    language = Language(tree_sitter_python.language())
    parser = Parser(language)
    cursor = QueryCursor(Query(language, _DEFINITIONS + _USES))
    tags: list[Tag] = []
    problems: dict[str, str] = {}
    for found in workspace.files():
        if not found.path.endswith(".py"):
            continue
        if found.size > MOST_BYTES:
            problems[found.path] = f"larger than {MOST_BYTES} bytes"
            continue
        try:
            with os.fdopen(workspace.open(found.path), "rb") as file:
                raw = file.read(MOST_BYTES)
        except Refused as error:
            problems[found.path] = str(error)
            continue
        root = parser.parse(raw).root_node
        if root.has_error:
            problems[found.path] = "it does not parse; what could be read of it is taken"
        tags += _tags(found.path, cursor.captures(root))
    graph: nx.MultiDiGraph[Any] = nx.MultiDiGraph()
    _join(graph, tags)
    return CodeGraph(tuple(tags), graph, problems)


def _tags(path: str, captures: dict[str, list[Any]]) -> list[Tag]:
    tags = set()
    for kind in ("class", "function", "use"):
        for node in captures.get(kind, ()):
            whole = node if kind == "use" else node.parent
            name = (node.text or b"").decode(errors="replace")
            tags.add(Tag(path, name, kind, node.start_point[0] + 1, whole.end_point[0] + 1))  # type: ignore[arg-type]
    return sorted(tags, key=lambda tag: (tag.line, -tag.end, tag.kind, tag.name))


def _join(graph: Any, tags: Sequence[Tag]) -> None:
    """Add nodes and edges: what contains what, and what uses what."""
    everywhere: dict[str, list[Tag]] = defaultdict(list)
    here: dict[tuple[str, str], list[Tag]] = defaultdict(list)
    for tag in tags:
        if tag.kind != "use":
            everywhere[tag.name].append(tag)
            here[tag.path, tag.name].append(tag)
    inside: list[Tag] = []
    path = ""
    for tag in tags:
        if tag.path != path:
            inside, path = [], tag.path
            graph.add_node(path, kind="file")
        while inside and inside[-1].end < tag.line:
            inside.pop()
        around = inside[-1].key if inside else path
        if tag.kind != "use":
            graph.add_node(tag.key, kind=tag.kind)
            graph.add_edge(around, tag.key, kind="contains")
            inside.append(tag)
            continue
        places = here.get((path, tag.name)) or everywhere.get(tag.name, [])
        for place in places if len(places) <= MOST_DEFINERS else ():
            graph.add_edge(around, place.key, kind="uses")
