"""The claim of Agent-as-a-Judge: a judge that looks for evidence itself is right more often than one that is only asked.

## What is compared

One model judges 64 requirements of eight small workspaces of which the truth is known, for it was planted (half are
satisfied; the others fail in ways of which some show in the file system and some only in what files hold). Arms differ in
the modules alone: nothing but the requirement (ask-only); the tree of files (tree); the tree, and the content of files
that the model itself chooses (agent). Beside them stands the pre-check without a model, which a judge should beat to be
worth its cost, and which takes what names no path for satisfied; and, deciding nothing, the agent whose verdict is read
from the log-probabilities of yes and no instead of its reply, where the model gives them. A requirement that stays unscored
counts as not aligned.

Arms that ask the same question share the answer, which temperature 0 makes the same: the agent whose verdict is weighed
locates what the agent has located. Each arm's tokens are counted as if it were alone; its minutes are not.

The workspaces have no trajectories, so *retrieve* is not compared. The paper compares with people's consensus on the
workspaces of three agents; of these one agent's work on one task is public, too little to decide anything.

## What must hold

Alignment of the agent minus that of ask-only, over the same requirements, is above 0 with its whole interval; and so is
that of the agent minus the pre-check. Requirements of one project share its files and what the model makes of them, so
projects are the unit of sampling: Tango's interval of paired proportions, its size corrected for how alike the differences
of one project are, with Student's t for as few units as there are projects.

## References

Zhuge et al., Agent-as-a-Judge: Evaluate Agents with Agents, ICML 2025, arXiv 2410.10934, table 3 and the ablation.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.claims.base import Claim, Measured, Part, Scale
from burnish.claims.decide import Measure, Row
from burnish.claims.digest import digest
from burnish.core.claim import Arm, Criterion, Evidence, Figure, Finding, Frozen, judge, settle
from burnish.core.method import Method, Paper
from burnish.core.run import Run

if TYPE_CHECKING:
    from burnish.llm import Sampling
    from burnish.llm.client import Chat, Reply

BATCH = 32
"""Questions that a model in this process works on together; answers do not depend on it."""
COLUMNS = ("aligned", "satisfied", "truth", "unscored", "calls", "prompt_tokens", "completion_tokens")


class Design(Frozen):
    """How much is judged, and with which budgets."""

    projects: int
    settings: dict[str, Any]
    """Of every arm that asks a model."""


class JudgeClaim(Claim):
    """A claim about judges, measured on planted workspaces."""

    designs: dict[Scale, Design]
    cells: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = (
        Measure(name="alignment", column="aligned"),
        Measure(name="unscored", column="unscored"),
        Measure(name="tokens read", column="prompt_tokens"),
    )
    code: tuple[str, ...] = ("burnish.claims.devai", "burnish.data.planted")

    def declaration(self) -> dict[str, Any]:
        """With the design of the full scale."""
        return {**super().declaration(), "design": self.designs["full"].model_dump()}

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Plant the workspaces and let every arm judge them.

        `model` is whatever `burnish.llm.connect` takes: also a server, or a recording.
        """
        from burnish import catalogue
        from burnish.data.planted import plant
        from burnish.llm.judge import Weighs

        design = self.designs[scale]
        llm = shared(connected(model, device, dtype), run)
        tasks, workspaces = plant(run.folder / "planted", projects=design.projects)
        measured = Measured(rows=[], lineage=[llm.name], data={"planted": _described(tasks, workspaces)})
        for number, arm in enumerate(self.arms, 1):
            if arm.settings.get("verdict") == "logprobs" and not isinstance(llm, Weighs):
                continue
            run.metric(arm=f"{number} of {len(self.arms)}")
            own = {} if arm.use == "devai precheck" else design.settings
            method = catalogue.load(arm.use).build({**own, **arm.settings})
            depends = [method.settings(), measured.data, digest(catalogue.module_of(arm.use)), llm.name]
            part = run.sub(f"{arm.name}-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:10]}")
            goods: dict[str, Any] = {"tasks": tasks, "workspaces": workspaces}
            goods |= {} if arm.use == "devai precheck" else {"judge": llm}
            found = part.once("arm", partial(_one, method, goods, part))
            measured.rows.extend({**row, "arm": arm.name} for row in found["rows"])
            measured.parts.append(Part(arm.name, {}, found["seconds"], llm.name.rpartition("@")[2]))
        run.metric(**_compared(measured.rows))
        return measured

    def collect(
        self, measured: Measured, *, model: str, scale: Scale, minutes: float, digests: Mapping[str, str]
    ) -> Evidence:
        """Put the evidence together, with projects as the unit of sampling."""
        found = super().collect(measured, model=model, scale=scale, minutes=minutes, digests=digests)
        rows: dict[str, list[Row]] = {}
        for row in sorted(measured.rows, key=lambda row: str(row["item_id"])):
            rows.setdefault(str(row["arm"]), []).append(row)
        asked = {criterion.name: criterion for criterion in self.asked(scale)}
        findings = [_over_projects(one, asked[one.criterion], rows) for one in found.findings]
        arms = [arm.model_copy(update={"measures": self._bounds(rows[arm.arm])}) for arm in found.arms]
        verdict = settle(one.verdict for one in findings)
        return found.model_copy(update={"findings": findings, "arms": arms, "verdict": verdict})

    def _bounds(self, rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        """Every measure of one arm, with bounds over projects."""
        from burnish.stats.scores import mean_score

        shown = {}
        for measure in self.measures:
            if all(measure.column in row for row in rows):
                tasks = [row["cluster"] for row in rows]
                found = mean_score([row[measure.column] for row in rows], tasks)
                shown[measure.name] = {"estimate": found.estimate, "low": found.low, "high": found.high}
        return shown

    def ours(self, evidence: Evidence) -> str:
        """Alignment of each arm, and how many criteria hold."""
        shown = [f"{one.arm} {one.measures['alignment']['estimate']:.1%}" for one in evidence.arms]
        return f"alignment: {', '.join(shown)}; {super().ours(evidence)}"


def _over_projects(finding: Finding, criterion: Criterion, rows: Mapping[str, Sequence[Row]]) -> Finding:
    """A finding with its interval, and so its verdict, over projects."""
    from burnish.stats.scores import paired_scores

    ours, theirs = rows[criterion.arm], rows[criterion.against]
    a, b = ([row[criterion.measure] for row in side] for side in (ours, theirs))
    found = paired_scores(a, b, [row["cluster"] for row in ours], level=criterion.level).interval
    return finding.model_copy(
        update={
            "low": found.low,
            "high": found.high,
            "verdict": judge(found.low, found.high, criterion.margin, criterion.side),
            "note": "; ".join(filter(None, [f"over {found.n_clusters} projects", found.note])),
        }
    )


def connected(model: str, device: str, dtype: str) -> Any:
    """The language model of that name, on that device where it runs in this process."""
    from burnish.llm import connect

    if model.startswith(("replay:", "http://", "https://")):
        return connect(model)
    from burnish.llm.local import Local
    from burnish.models import load

    return Local(load(model, device=device, dtype=dtype), batch_size=BATCH)


class Shared:
    """A language model of which all arms keep the replies in one place, so that none is asked what another was.

    Args:
        judge: The model.
        run: Where replies are kept.
    """

    def __init__(self, judge: Any, run: Run) -> None:
        self.judge, self.run = judge, run
        self.name: str = judge.name

    def generate(self, chats: Sequence[Chat], sampling: Sampling, run: Run) -> list[Reply]:
        """One reply for each chat, in their order (see `burnish.llm.LLM`)."""
        replies: list[Reply] = self.judge.generate(chats, sampling, self.run)
        return replies


class SharedWeighing(Shared):
    """One that also gives log-probabilities of answers (see `burnish.llm.judge.Weighs`)."""

    def logprobs(self, chats: Sequence[Chat], answers: Sequence[str]) -> list[list[float]]:
        """Log-probability in nats of each token of an answer to each chat."""
        found: list[list[float]] = self.judge.logprobs(chats, answers)
        return found

    def encode(self, chat: Chat) -> list[int]:
        """The prompt of a chat, as token ids."""
        ids: list[int] = self.judge.encode(chat)
        return ids


def shared(judge: Any, run: Run) -> Shared:
    """The model, with replies kept in `run`."""
    from burnish.llm.judge import Weighs

    return SharedWeighing(judge, run) if isinstance(judge, Weighs) else Shared(judge, run)


def _one(method: Method, goods: dict[str, Any], part: Run) -> dict[str, Any]:
    began = time.monotonic()
    act: Any = method
    scores = act(**goods, run=part)
    rows = [
        {"item_id": row["item_id"], "cluster": row["cluster"]}
        | {name: row[name] for name in COLUMNS if name in row}
        | {"unscored": int(row["status"] == "unscored")}
        for row in scores.rows()
    ]
    return {"rows": rows, "seconds": round(time.monotonic() - began, 2)}


def _compared(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The agent against each baseline as if requirements were independent: McNemar's test, and the posterior that it is
    right more often."""
    from burnish.stats.paired import mcnemar, paired_binary

    right: dict[str, dict[str, bool]] = {}
    for row in rows:
        right.setdefault(row["arm"], {})[row["item_id"]] = bool(row["aligned"])
    found = {}
    for other in ("ask-only", "precheck"):
        pairs = [(right["agent"][item], right[other][item]) for item in right["agent"]]
        both, ours, theirs, neither = (pairs.count((a, b)) for a in (True, False) for b in (True, False))
        posterior = paired_binary(both, ours, theirs, neither)
        found[f"agent against {other}"] = {
            "only agent right": ours,
            f"only {other} right": theirs,
            "mcnemar p": mcnemar(ours, theirs),
            "posterior of better": posterior.p_better,
        }
    return found


def _described(*folders: Path) -> str:
    """What was planted, exactly: files and a digest of their names and contents."""
    files = [(path.relative_to(folder).as_posix(), path) for folder in folders for path in folder.rglob("*")]
    files = sorted((name, path) for name, path in files if path.is_file())
    parts = [f"{name}\0".encode() + path.read_bytes() for name, path in files]
    whole = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    return f"{len(files)} files, SHA-256 {whole}"


ARMS = (
    Arm(name="precheck", use="devai precheck", settings={"unnamed": "satisfied"}, baseline=True),
    Arm(name="ask-only", use="devai judge", settings={"workflow": "ask-only"}, baseline=True),
    Arm(name="tree", use="devai judge", settings={"modules": ["workspace"]}),
    Arm(name="agent", use="devai judge", settings={"modules": ["workspace", "locate", "read"]}),
    Arm(
        name="agent-logprobs",
        use="devai judge",
        settings={"modules": ["workspace", "locate", "read"], "verdict": "logprobs"},
    ),
)
CRITERIA = tuple(
    Criterion(
        name=f"alignment agent > {against}",
        text=f"The judge that locates and reads files agrees with the truth more often than {said}.",
        statistic="difference",
        measure="aligned",
        arm="agent",
        against=against,
        side="above",
    )
    for against, said in (("ask-only", "the one that is only asked"), ("precheck", "the pre-check without a model"))
)

CLAIM = JudgeClaim(
    name="devai",
    title="agent as a judge",
    sentence=(
        "A language model that looks for evidence in a workspace judges requirements better than the same model that is "
        "only asked, and better than a check of what exists."
    ),
    paper=Paper(
        title="Agent-as-a-Judge: Evaluate Agents with Agents",
        authors="Zhuge, Zhao, Ashley, Wang, Khizbullin, Xiong, Liu, Chang, Krishnamoorthi, Tian, Shi, Chandra, Schmidhuber",
        year=2025,
        venue="ICML 2025",
        arxiv="2410.10934",
    ),
    figures=(
        Figure(
            where="ablation, OpenHands",
            numbers={"ask": 65.03, "+ graph": 75.95, "+ read": 82.24, "+ locate": 90.44, "+ retrieve": 90.16},
            measure="alignment, %",
        ),
        Figure(
            where="black box, OpenHands",
            numbers={"LLM judge": 60.38, "agent judge": 90.44, "best single human": 89.89, "human majority": 94.26},
            measure="alignment, %",
        ),
        Figure(
            where="black box, GPT-Pilot",
            numbers={"LLM judge": 65.30, "agent judge": 83.88, "best single human": 90.98, "human majority": 93.98},
            measure="alignment, %",
        ),
        Figure(
            where="black box, MetaGPT",
            numbers={"LLM judge": 84.15, "agent judge": 88.52, "best single human": 92.63, "human majority": 95.08},
            measure="alignment, %",
        ),
    ),
    arms=ARMS,
    criteria=CRITERIA,
    smaller={"smoke": CRITERIA},
    default_model="qwen2.5-coder-1.5b",
    designs={
        # A verdict or five paths, and a sentence or two.
        "full": Design(projects=8, settings={"answer": 64}),
        # The tiny model has a context of 512 tokens.
        "smoke": Design(projects=2, settings={"evidence": 90, "tree": 90, "file": 50, "answer": 8}),
    },
)
