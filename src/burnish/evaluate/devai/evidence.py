"""Evidence about one workspace: the modules that gather it, and putting it together within a budget of tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from burnish.core.errors import BadInput
from burnish.data.codegraph import CodeGraph, code_graph
from burnish.data.codesearch import CodeSearch, Embed
from burnish.data.devai import Requirement, Task
from burnish.data.documents import read_document
from burnish.data.workspace import Refused, Workspace, named_paths, readable, tree
from burnish.evaluate.devai.prompts import RUBRIC
from burnish.llm.tokens import count_tokens, keep_ends, keep_head, keep_tail, share

Module = Literal["user_query", "workspace", "locate", "read", "search", "history", "trajectory"]

STEP = {"user_message": 300, "action": 50, "thought": 100, "environment": 100}
"""Tokens that are kept of each part of a step; the paper's code."""
LISTED = 30
"""Files of a folder that are named."""
NAMED = 5
"""Links and the like that the tree says are left out."""


@dataclass(frozen=True)
class Piece:
    """One thing that the judge is shown."""

    kind: str
    title: str
    text: str
    path: str = ""
    """The file or folder that it shows; empty for what is no file."""


@dataclass
class Trail:
    """How the evidence on one requirement came about."""

    requirement: Requirement
    modules: tuple[str, ...] = ()
    pieces: list[Piece] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    """Proposed paths that were not looked at, and why."""
    problems: list[dict[str, str]] = field(default_factory=list)
    """Files that could not be read, or not wholly, and why."""
    replies: list[Any] = field(default_factory=list)
    """What the model answered on the way."""
    summary: str = ""
    """What the model says that the steps show."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Budgets:
    """Most tokens of each kind of evidence."""

    evidence: int
    tree: int
    file: int
    trajectory: int


class Scene:
    """A task's workspace and trajectory, looked at as far as is asked for."""

    def __init__(
        self,
        task: Task,
        workspace: Workspace,
        steps: Sequence[Mapping[str, Any]],
        budgets: Budgets,
        embed: Embed | None,
    ) -> None:
        self.task, self.workspace, self.steps, self.budgets, self.embed = task, workspace, steps, budgets, embed
        self.earlier: list[str] = []
        """What was said of the requirements so far, a line each."""

    @cached_property
    def graph(self) -> CodeGraph:
        """What the Python files define and use."""
        return code_graph(self.workspace)

    @cached_property
    def search(self) -> CodeSearch:
        """The index over definitions."""
        return CodeSearch(self.workspace, self.graph, self.embed)

    @cached_property
    def tree(self) -> str:
        """All files and what they define, within the tree's budget."""
        files = self.workspace.files()
        if not files:
            return "(the workspace is empty)"
        outline = self.graph.outline() if any(found.path.endswith(".py") for found in files) else {}
        gone = self.workspace.left_out
        more = f", and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
        lines = [tree(files, outline), *([f"(left out: {'; '.join(gone[:NAMED])}{more})"] if gone else [])]
        return RUBRIC.defuse(keep_ends("\n".join(lines), self.budgets.tree))

    @cached_property
    def trajectory(self) -> str:
        """The last steps, each cut, within the trajectory's budget."""
        return RUBRIC.defuse(keep_tail("\n".join(map(condense, self.steps)), self.budgets.trajectory))

    def resolve(self, trail: Trail, proposed: Sequence[str]) -> None:
        """Keep the proposed paths that are in the workspace; note why the others are not looked at."""
        for proposal in proposed:
            try:
                path = self.workspace.resolve(proposal)
            except Refused as error:
                trail.refused.append({"path": proposal, "why": str(error)})
                continue
            if path not in trail.paths:
                trail.paths.append(path)

    def remember(self, requirement: Requirement, satisfied: int | None) -> None:
        """Keep a verdict for those on later requirements."""
        if satisfied is not None:
            said = "was satisfied." if satisfied else "was not satisfied."
            self.earlier.append(f"- {requirement.criteria} {said}")

    def show(self, trail: Trail, module: str) -> None:
        """Add what a module has to show."""
        criteria = trail.requirement.criteria
        if module == "user_query":
            trail.pieces.append(Piece(module, "the user's request", self.task.query))
        elif module == "workspace":
            trail.pieces.append(Piece(module, "files of the workspace", self.tree))
        elif module == "locate" and "read" not in trail.modules:
            trail.pieces += [Piece(module, f"located: {path}", self._about(path), path) for path in trail.paths]
        elif module == "read":
            if "locate" not in trail.modules:
                self.resolve(trail, named_paths(criteria))
            trail.pieces += [self._read(trail, path) for path in trail.paths]
        elif module == "search":
            for snippet in self.search.find(criteria):
                users = self.graph.users(snippet.tag)
                used = f", used in {', '.join(users[:5])}" if users else ""
                title = f"{snippet.tag.path}, line {snippet.tag.line}, found by {snippet.how}{used}"
                trail.pieces.append(Piece(module, title, keep_head(snippet.text, self.budgets.file), snippet.tag.path))
        elif module == "history" and self.earlier:
            trail.pieces.append(Piece(module, "verdicts on earlier requirements", "\n".join(self.earlier)))
        elif module == "trajectory" and trail.summary:
            trail.pieces.append(Piece(module, "what the agent's steps show", trail.summary))

    def _about(self, path: str) -> str:
        return self._listing(path) if path.endswith("/") else f"({readable(self.workspace.size(path))})"

    def _listing(self, path: str) -> str:
        found = self.workspace.inside(path)
        more = [f"and {len(found) - LISTED} more"] if len(found) > LISTED else []
        return "\n".join([*(f"{one.path} ({readable(one.size)})" for one in found[:LISTED]), *more]) or "(empty)"

    def _read(self, trail: Trail, path: str) -> Piece:
        if path.endswith("/"):
            return Piece("read", f"folder {path}", self._listing(path), path)
        try:
            document = read_document(self.workspace, path)
        except Refused as error:
            trail.problems.append({"path": path, "why": str(error)})
            return Piece("read", f"file {path}", f"[it could not be read: {error}]", path)
        note = f"[{document.problem}]\n" if document.problem else ""
        if document.problem:
            trail.problems.append({"path": path, "why": document.problem})
        return Piece("read", f"file {path}", note + keep_ends(document.text, self.budgets.file), path)


def condense(step: Mapping[str, Any]) -> str:
    """One step of a trajectory, each of its parts cut to its length."""
    said = step.get("agent")
    agent: dict[str, Any] = said if isinstance(said, dict) else {}
    parts = {
        "user_message": step.get("user_message"),
        "thought": agent.get("thought"),
        "action": agent.get("action"),
        "environment": step.get("environment"),
    }
    shown = [f"{name.replace('_', ' ')}: {keep_head(str(text), STEP[name])}" for name, text in parts.items() if text]
    return "\n".join([f"[step {step.get('step', '?')}]", *shown])


def read_trajectory(path: Path) -> list[dict[str, Any]]:
    """The steps of a trajectory file.

    Raises:
        BadInput: it is no list of steps.
    """
    try:
        steps = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"the trajectory {path} cannot be read: {error}", "give a JSON list of steps") from None
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise BadInput(f"the trajectory {path} is no list of steps", "see DevAI's trajectory-schema.json")
    return steps


def assemble(pieces: Sequence[Piece], most: int) -> tuple[str, list[dict[str, Any]], int]:
    """One text of all pieces in no more than `most` tokens; what it shows of which file; and its tokens.

    The paper cuts the middle out of the joined text, by which whole files may vanish. Here small pieces are kept whole
    and large ones are cut alike, so that what is cited was seen.
    """
    heads = [f"=== {RUBRIC.defuse(piece.title)} ===\n" for piece in pieces]
    texts = [RUBRIC.defuse(piece.text) for piece in pieces]
    sizes = [count_tokens(head) + count_tokens(text) + 1 for head, text in zip(heads, texts, strict=True)]
    parts: list[str] = []
    cited: list[dict[str, Any]] = []
    for piece, head, text, size, room in zip(pieces, heads, texts, sizes, share(sizes, most), strict=True):
        kept = text if room == size else keep_ends(text, room - count_tokens(head) - 1)
        if room < size and not kept:
            continue
        parts.append(head + kept)
        if piece.path:
            row = {"path": piece.path, "by": piece.kind, "tokens": count_tokens(kept), "cut": kept != text}
            cited += [] if any(one["path"] == piece.path for one in cited) else [row]
    whole = "\n".join(parts)
    return whole, cited, count_tokens(whole)
