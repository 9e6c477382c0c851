"""The judging agent: it gathers evidence about a workspace, requirement by requirement, and asks a model for a verdict.

## How it works

For each requirement r, modules gather evidence, and one question ends it:

* *graph*: what the Python files define and use (tree-sitter); it annotates the tree of files and serves the search
* *locate*: the model names at most five paths of the tree; *read*: their content, by format
* *search*: definitions found by name (likeness of at least 70), by words (BM25) and by meaning (sentence embeddings)
* *retrieve*: the developing agent's steps, each cut, the last 10,000 tokens of them, summed up by the model
* *memory* (history): verdicts on the task's earlier requirements; *planning*: the model chooses among the modules
* *ask*: the evidence and the requirement; the verdict is <SATISFIED> or <UNSATISFIED>, by majority over `votes`

Workflows are the paper's: *efficient* (workspace, locate, read, trajectory; the best in its ablation), *comprehensive*
(all), *planning*; *ask-only* shows the model nothing but the requirement. A row of the result is a requirement with its
verdict, the files that the model was shown, the paths that it proposed and that were refused, and what it cost.

## Differences

* A reply that states no single verdict is *unscored*; the released code takes it for "not satisfied". A call that fails
  stops the run, which goes on from there when it is started again. Unscored counts as not aligned.
* Paths that the model proposes are looked up inside the workspace alone, and never through links. Where it forgets the
  marks around them, those that its reply names are taken.
* A file of an unknown format is not taken as fine: the judge is told that it could not be read, and why. Images and
  videos are described (format, size, blank or not), not looked at.
* What does not fit is cut from each piece of evidence, not from the middle of all, so that no cited file is unseen.
* Costs are the sum over all calls. Memory holds verdicts of this run only.
* `verdict="logprobs"` compares the likelihoods of "yes" and "no", for local models whose replies are broken.

## When not to use it

A requirement that can be tested should be tested. A judge that sees no images cannot judge how a figure looks.

## References

Zhuge et al., Agent-as-a-Judge: Evaluate Agents with Agents, ICML 2025, arXiv 2410.10934.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.codesearch import Embed
from burnish.data.devai import Requirement, Task, read_tasks
from burnish.data.documents import TEXTS
from burnish.data.scores import Scores
from burnish.data.workspace import Workspace, named_paths
from burnish.evaluate.devai import PAPER, prompts
from burnish.evaluate.devai.evidence import Budgets, Module, Scene, Trail, assemble, read_trajectory
from burnish.evaluate.devai.places import trajectory_of, workspaces_of
from burnish.evaluate.devai.rows import summary, with_dependents
from burnish.llm import LLM, Sampling
from burnish.llm.client import Chat, Reply
from burnish.llm.judge import Judgment, ask, spent, weigh
from burnish.llm.tokens import count_tokens

WORKFLOWS: dict[str, tuple[Module, ...]] = {
    "efficient": ("workspace", "locate", "read", "trajectory"),
    "comprehensive": ("user_query", "workspace", "locate", "read", "search", "history", "trajectory"),
    "ask-only": (),
}
TOGETHER = 32
"""Requirements of small tasks that are judged together, so that a model may work on many questions at once."""


class Judge(Evaluation):
    """Judge what a developing agent left behind, requirement by requirement, with evidence for each verdict."""

    paper = PAPER
    needs = ("workspaces",)

    workflow: Literal["efficient", "comprehensive", "planning", "ask-only"] = "efficient"
    """Which modules gather evidence; the paper's best."""
    modules: tuple[Module, ...] = ()
    """These instead of the workflow's."""
    box: Literal["gray", "black"] = "gray"
    """Whether the developing agent's steps are looked at (gray) or not (black)."""
    verdict: Literal["text", "logprobs"] = "text"
    """Read the verdict from the reply, or compare the likelihoods of yes and no (models in this process)."""
    votes: Annotated[int, Field(ge=1)] = 1
    """Replies asked for each verdict; one, which temperature 0 makes repeatable."""
    threshold: Annotated[float, Field(ge=0.5, lt=1)] = 0.5
    """Share of the votes that a verdict has to exceed; the paper's code."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Of the model; the paper's. Several votes need more."""
    evidence: Annotated[int, Field(ge=50)] = 10_000
    """Most tokens of all evidence on one requirement; the paper's code."""
    tree: Annotated[int, Field(ge=20)] = 2_000
    """Most tokens of the list of files; the paper's code."""
    file: Annotated[int, Field(ge=20)] = 2_000
    """Most tokens of one file; the paper's code."""
    trajectory: Annotated[int, Field(ge=50)] = 10_000
    """Most tokens of the steps that the model sums up, the last ones; the paper's code."""
    files: Annotated[int, Field(ge=1)] = 5
    """Most paths that the model may choose; the paper's code."""
    named: bool = False
    """Look also at the paths that the requirement itself names, whatever the model chooses."""
    answer: Annotated[int, Field(ge=1)] = 256
    """Most tokens of one reply."""
    embedder: str = ""
    """For the search by meaning: "minilm", or the folder of a sentence-embedding model; none: by names and words alone."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.votes > 1 and self.temperature == 0 and self.verdict == "text":
            raise ValueError(f"votes: {self.votes} replies at temperature 0 are all the same; raise the temperature")
        if self.votes > 1 and self.verdict == "logprobs":
            raise ValueError("votes: log-probabilities need one look only; leave votes at 1")
        return self

    def __call__(
        self, tasks: Path, workspaces: Path, judge: LLM, trajectories: Path | None = None, run: Run | None = None
    ) -> Scores:
        """Judge every requirement of every task.

        Args:
            tasks: A task's JSON file, or a folder or an archive of them, as DevAI writes them. Where `satisfied` is
                filled in, it is taken for the truth, shown to nobody and compared with.
            workspaces: A folder that holds, for each task, a folder of its name; for a single task also that folder.
            judge: The model that is asked.
            trajectories: A folder with ``<task>.json`` for each task that has one.
            run: Where verdicts, calls and figures go; a run that was stopped goes on at the call where it was.

        Returns:
            A row a requirement: item_id, model, cluster (the task), status, satisfied, its two dependent variants,
            reason, evidence, refused, problems, tokens, calls, cost; truth and aligned where the truth is known.

        Raises:
            BadInput: tasks, workspaces or trajectories that cannot be used, all listed.
            Unsupported: log-probabilities of a model that has none.
        """
        run = ensure(run)
        every = read_tasks(tasks)
        places = workspaces_of(every, workspaces)
        steps = {one.name: trajectory_of(one, trajectories) for one in every}
        embed = self._embedder()

        def work(group: list[Task]) -> list[list[dict[str, Any]]]:
            scenes = [self._scene(task, places[task.name], steps[task.name], embed) for task in group]
            return self._judge(scenes, judge, run)

        groups = _together(every)
        judged = run.map(work, groups, key=lambda group: ", ".join(task.name for task in group), step="tasks")
        rows = [
            row
            for group, found in zip(groups, judged, strict=True)
            for task, own in zip(group, found, strict=True)
            for row in with_dependents(task, own)
        ]
        run.items(rows)
        run.metric(**summary(rows, self.level))
        return Scores.of(rows, workflow=self.workflow, judge=judge.name)

    def estimate(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """Requirements, and at most how many calls and tokens, before anything is asked."""
        every = read_tasks(Path(sources["tasks"]))
        places = workspaces_of(every, Path(sources["workspaces"]))
        steps = Path(sources["trajectories"]) if sources.get("trajectories") else None
        plans = self.workflow == "planning" and not self.modules
        chosen = ("locate", "trajectory") if plans else self._chosen()
        calls = prompt = 0
        for task in every:
            scene = self._scene(task, places[task.name], trajectory_of(task, steps), None)
            shown = {"locate": "locate" in chosen and bool(scene.workspace.files())}
            shown["trajectory"] = "trajectory" in chosen and self.box == "gray" and bool(scene.steps)
            room = self.evidence if plans else self._room(scene)
            for one in task.requirements:
                chats = [prompts.judge(task, one, "", weighed=False)] * self.votes
                chats += [prompts.plan(task, one)] if plans else []
                chats += [prompts.locate(task, one, scene.tree, self.files)] if shown["locate"] else []
                chats += [prompts.retrieve(task, one, scene.trajectory)] if shown["trajectory"] else []
                calls += len(chats)
                prompt += self.votes * room + sum(count_tokens(turn["content"]) for chat in chats for turn in chat)
        return {
            "requirements": sum(len(task.requirements) for task in every),
            "calls_at_most": calls,
            "prompt_tokens_at_most": prompt,
            "reply_tokens_at_most": calls * self.answer,
        }

    def _room(self, scene: Scene) -> int:
        """The most tokens that evidence can take: of a small workspace all that it holds, with what is said around it."""
        chosen = set(self._chosen())
        if not chosen:
            return 0
        if chosen - {"workspace", "locate", "read"} - ({"trajectory"} if not scene.steps else set()):
            return self.evidence
        # A byte of text is a token at most; of other formats the size says nothing.
        sizes = [one.size if Path(one.path).suffix in TEXTS else self.file for one in scene.workspace.files()]
        around = 40 * self.files + 3 * count_tokens(scene.tree)
        return min(self.evidence, around + sum(min(size, self.file) for size in sizes))

    def _scene(self, task: Task, place: Path, steps: Path | None, embed: Embed | None) -> Scene:
        budgets = Budgets(self.evidence, self.tree, self.file, self.trajectory)
        return Scene(task, Workspace(place), read_trajectory(steps) if steps else [], budgets, embed)

    def _embedder(self) -> Embed | None:
        if not self.embedder:
            return None
        from burnish.core.extras import require

        require("the search by meaning", "models")
        from burnish.engine.embed import Embedder
        from burnish.models.fetch import fetch

        folder = Path(self.embedder)
        return Embedder(folder if folder.is_dir() else fetch(self.embedder)).embed

    def _judge(self, scenes: Sequence[Scene], judge: LLM, run: Run) -> list[list[dict[str, Any]]]:
        """The rows of each scene."""
        rows: dict[str, list[dict[str, Any]]] = {scene.task.name: [] for scene in scenes}
        for cases in self._rounds(scenes):
            for (scene, one), row in zip(cases, self._round(cases, judge, run), strict=True):
                rows[scene.task.name].append(row)
                scene.remember(one, row["satisfied"])
        return list(rows.values())

    def _rounds(self, scenes: Sequence[Scene]) -> list[list[tuple[Scene, Requirement]]]:
        """What is judged together: everything, or one requirement a task where later ones are told of earlier verdicts."""
        cases = [[(scene, one) for one in scene.task.requirements] for scene in scenes]
        if self.workflow != "planning" and "history" not in self._chosen():
            return [[case for own in cases for case in own]]
        return [[case for case in row if case] for row in zip_longest(*cases)]

    def _chosen(self) -> tuple[str, ...]:
        chosen = self.modules or WORKFLOWS.get(self.workflow, ())
        return tuple(module for module in chosen if module != "trajectory" or self.box == "gray")

    def _round(self, cases: Sequence[tuple[Scene, Requirement]], judge: LLM, run: Run) -> list[dict[str, Any]]:
        """Each stage for all requirements at once, so that a model may answer them together."""
        sampling = Sampling(temperature=self.temperature, max_tokens=self.answer)
        looks = [(scene, Trail(one, self._chosen())) for scene, one in cases]
        if self.workflow == "planning" and not self.modules:
            self._plan(looks, judge, sampling, run)

        locating = [(scene, trail) for scene, trail in looks if "locate" in trail.modules and scene.workspace.files()]
        chats = [prompts.locate(scene.task, trail.requirement, scene.tree, self.files) for scene, trail in locating]
        for (scene, trail), reply in zip(locating, _replies(judge, chats, sampling, run), strict=True):
            trail.replies.append(reply)
            proposed = prompts.proposals(reply.text, self.files)
            if not proposed and (proposed := named_paths(reply.text)[: self.files]):
                trail.notes.append("no path stood between dollar signs; those that the reply names were taken")
            scene.resolve(trail, proposed)
        recalling = [(scene, trail) for scene, trail in looks if "trajectory" in trail.modules and scene.steps]
        chats = [prompts.retrieve(scene.task, trail.requirement, scene.trajectory) for scene, trail in recalling]
        for (_, trail), reply in zip(recalling, _replies(judge, chats, sampling, run), strict=True):
            trail.replies.append(reply)
            trail.summary = reply.text
        questions, shown = [], []
        weighed = self.verdict == "logprobs"
        for scene, trail in looks:
            if self.named and "read" in trail.modules:
                scene.resolve(trail, named_paths(trail.requirement.criteria))
            for module in trail.modules:
                scene.show(trail, module)
            text, cited, tokens = assemble(trail.pieces, self.evidence)
            shown.append((cited, tokens))
            questions.append(prompts.judge(scene.task, trail.requirement, text, weighed=weighed))
        judgments = (
            weigh(judge, questions, prompts.ANSWERS, run)
            if weighed
            else ask(
                judge, questions, prompts.RUBRIC, run, sampling=sampling, votes=self.votes, threshold=self.threshold
            )
        )
        return [
            _row(scene, trail, cited, tokens, judgment, judge.name)
            for (scene, trail), (cited, tokens), judgment in zip(looks, shown, judgments, strict=True)
        ]

    def _plan(self, looks: Sequence[tuple[Scene, Trail]], judge: LLM, sampling: Sampling, run: Run) -> None:
        chats = [prompts.plan(scene.task, trail.requirement) for scene, trail in looks]
        for (_, trail), reply in zip(looks, _replies(judge, chats, sampling, run), strict=True):
            trail.replies.append(reply)
            chosen = prompts.chosen(reply.text)
            if not chosen:
                trail.notes.append("the plan named nothing; the efficient workflow was taken")
                chosen = list(WORKFLOWS["efficient"])
            trail.modules = tuple(module for module in chosen if module != "trajectory" or self.box == "gray")


def _together(tasks: Sequence[Task]) -> list[list[Task]]:
    """Neighbouring tasks in groups of about `TOGETHER` requirements."""
    groups: list[list[Task]] = []
    for task in tasks:
        if groups and sum(len(one.requirements) for one in [*groups[-1], task]) <= TOGETHER:
            groups[-1].append(task)
        else:
            groups.append([task])
    return groups


def _replies(judge: LLM, chats: Sequence[Chat], sampling: Sampling, run: Run) -> list[Reply]:
    return judge.generate(chats, sampling, run) if chats else []


def _row(
    scene: Scene, trail: Trail, cited: list[dict[str, Any]], tokens: int, judgment: Judgment, model: str
) -> dict[str, Any]:
    """A requirement's verdict with its trail, as plain values."""
    before = spent(trail.replies)
    costs = [cost for cost in (before["cost"], judgment.cost) if cost is not None]
    truth = trail.requirement.satisfied
    satisfied = None if judgment.label is None else int(judgment.label == prompts.YES)
    known = {one.path for one in scene.workspace.files()}
    named = named_paths(judgment.text)
    return {
        "item_id": f"{scene.task.name}/{trail.requirement.number}",
        "model": model,
        "cluster": scene.task.name,
        "status": "unscored" if satisfied is None else "scored",
        "satisfied": satisfied,
        "share": judgment.share,
        "truth": None if truth is None else int(truth),
        "aligned": None if truth is None else int(satisfied == int(truth)),
        "reason": judgment.text or judgment.why,
        "why_unscored": judgment.why,
        "modules": ", ".join(trail.modules),
        "evidence": json.dumps(cited),
        "cites": json.dumps([path for path in named if path in known]),
        "invented": json.dumps([path for path in named if path not in known and not path.endswith("/")]),
        "refused": json.dumps(trail.refused),
        "problems": json.dumps(trail.problems),
        "notes": "; ".join(trail.notes),
        "evidence_tokens": tokens,
        "calls": before["calls"] + judgment.calls,
        "prompt_tokens": before["prompt_tokens"] + judgment.prompt_tokens,
        "completion_tokens": before["completion_tokens"] + judgment.completion_tokens,
        "cost": sum(costs) if costs else None,
        "seconds": round(before["seconds"] + judgment.seconds, 3),
    }
