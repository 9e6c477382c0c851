"""The claim about contaminated translation tests: both sides in training inflate scores, more so in larger models.

## What is compared

Models of two sizes are trained from nothing on Multi30k's English-German captions, twice, each time with other pairs, places
and first weights. From each base fork branches that read the same further pairs: clean, clean in another order, and with 200
test pairs laid in eight times each, evenly spread: only their sources, only their targets, or both. All translate the injected
sentences and 200 others of the same test set, the control. A branch's gain is its BLEU less that of the clean branch.

Branches are not trained for as long as each other: the clean one reads no copies, one with both sides reads twice as many tokens
of copies as one with a side, and copies of whole pairs are translations to learn from, whatever is tested. So gains are no
measure of contamination. What decides is the *excess*, the gain on the injected sentences less that on the control: what more
training brings, it brings to both. A sentence's part in it is its jackknife pseudo-value, over the sentences of both kinds
(`burnish.evaluate.contamination.gains.excess_shares`), so that branches and sizes can be compared sentence by sentence.

Beside the excesses, two ways of looking into the models that were trained: how well Min-K%++ finds the injected pairs in the
larger model that saw both sides, and in its base that saw none of them.

Shown, and deciding nothing: excess in chrF, the gains on either kind of sentences, the other sign (loss), and the *noise floor*: the
excess of a branch that reads the clean pairs in another order. Intervals are over sentences, for models as they were trained;
how much another order of the same data changes a model is in none of them. Of that noise there is one draw a size and seed, too few
for an interval: an excess that is not well above it proves nothing, whatever its own interval says. The two seeds, each of which
has to hold, are what guards against it.

## What must hold, in each of the two seeds

* the excess of both sides is above that of the source alone and above that of the target alone, in the larger model;
* the excess of both sides is larger in the larger model.

The interval of each paired difference lies above 0 at the level 0.995, about what it takes for two separate 95 % intervals to
lie apart. And of the probe:

* AUROC above 0.8 where both sides were injected, in each seed;
* AUROC between 0.4 and 0.6 on the clean bases, over both seeds.

## Differences

The paper trains 1 and 8 billion parameters, on eight languages; there one copy already matters, and gains reach 30 BLEU. The
models here are a thousand times smaller and read half a million tokens: what is compared is the ordering, not the size.

## References

Kocyigit et al., Overestimation in LLM Evaluation, ICML 2025, arXiv 2501.18771.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from burnish.claims.base import Claim, Measured, Part, Scale
from burnish.claims.decide import Measure, Row
from burnish.claims.digest import digest
from burnish.core.claim import Arm, Criterion, Evidence, Figure, Frozen
from burnish.core.errors import BadInput
from burnish.core.files import sha256
from burnish.core.run import Run
from burnish.evaluate.contamination import PAPER

METHOD = "contamination measure"
FOLDERS = ("multi30k", "monoattn")
"""Folders of the data that may hold the captions."""
FILES = ("train.en.gz", "train.de.gz", "test_2016_flickr.en.gz", "test_2016_flickr.de.gz")
MODES = ("source", "target", "both")
LARGE, SMALL = "large", "small"
REORDERED = "reordered"
"""The branch whose excess is training noise alone."""
APART = 0.995
"""Two independent 95 % intervals of equal width lie apart when the difference is 2.77 standard errors: a level of 0.994."""
FOUND, BLIND = 0.8, 0.1
"""Least AUROC of the probe on what was injected, and how far it may be from 0.5 where nothing was."""
COPIES = 8
SENTENCES = {"injected": "on the injected", "other": "on the others"}
"""Kinds of sentences, and how the arms are named that show scores and gains on one kind."""


class Design(Frozen):
    """How much is trained and measured."""

    small: str
    """Size of the smaller model."""
    large: str
    seeds: int
    settings: dict[str, Any]
    """Of the method, where they are not its defaults."""
    made: int = 0
    """Pairs of made-up text to train on, in place of the captions."""


class ContaminationClaim(Claim):
    """A claim about test pairs in training data, measured on models that are trained for it."""

    designs: dict[Scale, Design]
    cells: tuple[str, ...] = ("seed",)
    measures: tuple[Measure, ...] = (
        Measure(name="excess BLEU", column="excess"),
        Measure(name="excess chrF", column="chrf_excess"),
        Measure(name="BLEU gained", column="gain"),
        Measure(name="chrF gained", column="chrf_gain"),
        Measure(name="BLEU", column="bleu"),
        Measure(name="AUROC, Min-K%++", column="auroc"),
        Measure(name="AUROC, loss", column="auroc_loss"),
    )
    code: tuple[str, ...] = ("burnish.claims.contamination", "burnish.claims.decide")
    default_model: str = ""

    def declaration(self) -> dict[str, Any]:
        """With the design of the full scale."""
        return {**super().declaration(), "design": self.designs["full"].model_dump()}

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Train all branches, and compare them; no model is loaded."""
        from burnish import catalogue

        design = self.designs[scale]
        files = _made(run.folder / "made", design.made) if design.made else _captions()
        sizes = (design.small, design.large)
        method = catalogue.load(METHOD).build({"sizes": sizes, "seeds": design.seeds, **design.settings})
        read = {path.name: f"SHA-256 {sha256(path)}" for path in files}
        products = _precision(method)
        depends = [method.settings(), read, products, digest(catalogue.module_of(METHOD))]
        part = run.sub(f"measure-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:10]}")
        act: Any = method
        scores = act(*files, run=part)
        measured = Measured(rows=list(_rows(scores.rows(), design)), data=read)
        measured.parts.extend(_parts(part, design))
        measured.lineage.append(
            f"{design.small} and {design.large} parameters, trained from nothing, products in {products}"
        )
        return measured

    def label(self, arm: str, cell: Mapping[str, Any]) -> str:
        """E.g. "both sides, large, on the injected, seed 0"."""
        words = [
            arm.replace("both", "both sides").replace("source,", "source only,").replace("target,", "target only,")
        ]
        words += [f"seed {cell['seed']}"] if "seed" in cell else []
        return ", ".join(words)

    def ours(self, evidence: Evidence) -> str:
        """Excess BLEU of each way of contaminating, per size, over the seeds, and its noise; and how many criteria hold."""
        shown = []
        for size in (SMALL, LARGE):
            found = [f"{mode} {'/'.join(_excesses(evidence, f'{mode}, {size}'))}" for mode in MODES]
            noise = "/".join(_excesses(evidence, f"{REORDERED}, {size}"))
            shown.append(f"{size}: {', '.join(found)} (another order of clean data {noise})")
        return f"excess BLEU by seed, {'; '.join(shown)}; {super().ours(evidence)}"


def _excesses(evidence: Evidence, arm: str) -> list[str]:
    return [f"{found.measures['excess BLEU']['estimate']:+.1f}" for found in evidence.arms if found.arm == arm]


def _precision(method: Any) -> str:
    """In which products are computed here, which "auto" leaves to the machine."""
    import torch

    from burnish.nn.pretrain import Plan, precision_of

    return precision_of(Plan(precision=method.precision), torch.device("cpu"))


def _captions() -> list[Path]:
    """The caption files, source and target of each part.

    Raises:
        BadInput: they are not at hand.
    """
    root = os.environ.get("BURNISH_DATA", "")
    for folder in FOLDERS:
        files = [Path(root) / folder / name for name in FILES]
        if root and all(path.is_file() for path in files):
            return files
    raise BadInput(
        f"Multi30k's captions are not at hand: {', '.join(FILES)} in $BURNISH_DATA/{FOLDERS[0]}",
        "fetch data/task1/raw of github.com/multi30k/dataset, and give the folder above it with --data",
    )


def _made(folder: Path, count: int) -> list[Path]:
    """Files of made-up pairs under the captions' names."""
    from burnish.core.files import write_text
    from burnish.data.made_pairs import made_pairs

    files = [folder / name.removesuffix(".gz") for name in FILES]
    for pairs, sides in ((made_pairs(count, 0), files[:2]), (made_pairs(count // 4, 1), files[2:])):
        for number, path in enumerate(sides):
            write_text(path, "".join(f"{pair[number]}\n" for pair in pairs))
    return files


def _rows(found: list[dict[str, Any]], design: Design) -> Iterator[Row]:
    """The claim's rows: excess and gains of each branch over the clean one, and shares of the AUROC of the probed models."""
    from burnish.evaluate.contamination.gains import signs
    from burnish.stats.membership import auroc_shares

    named = {design.small: SMALL, design.large: LARGE}
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in found:
        groups.setdefault((row["size"], row["seed"], row["branch"].partition(" ")[0]), []).append(row)
    for (size, seed, branch), rows in groups.items():
        clean = {row["item_id"]: row for row in groups[size, seed, "clean"]}
        for row in rows:
            base, same = clean[row["item_id"]], {"item_id": row["item_id"], "seed": seed}
            arm = f"{branch}, {named[size]}"
            yield {**same, "arm": arm, "excess": row["bleu_excess"], "chrf_excess": row["chrf_excess"]}
            yield {
                **same,
                "arm": f"{arm}, {SENTENCES['injected' if row['injected'] else 'other']}",
                "bleu": row["bleu"],
                "gain": row["bleu"] - base["bleu"],
                "chrf_gain": row["chrf"] - base["chrf"],
            }
        if size == design.large and branch in ("base", "both"):
            values, flags = signs(rows), np.array([row["injected"] for row in rows])
            shares = {sign: auroc_shares(values[sign], flags) for sign in ("min_k_pp", "loss")}
            for number, row in enumerate(rows):
                told = {"item_id": row["item_id"], "seed": seed}
                auroc = {"auroc": shares["min_k_pp"][number], "auroc_loss": shares["loss"][number]}
                yield {**told, "arm": f"probe of {branch}, {LARGE}", **{k: float(v) for k, v in auroc.items()}}
                if branch == "base":
                    yield {**told, "arm": "chance", "auroc": 0.5}


def _parts(part: Run, design: Design) -> Iterator[Part]:
    """What each branch cost; a base is counted with the arm of its name."""
    for size, name in ((design.small, SMALL), (design.large, LARGE)):
        for seed in range(design.seeds):
            seconds: dict[str, float] = {}
            for event in part.sub(f"{size}-seed{seed}").events():
                branch = event.get("name", "").partition(" ")[0]
                seconds[branch] = seconds.get(branch, 0.0) + event.get("seconds", 0.0)
            for branch, spent in seconds.items():
                yield Part(f"{branch}, {name}", {"seed": seed}, round(spent, 1))


def _criteria(seeds: int) -> tuple[Criterion, ...]:
    found = []
    for seed in range(seeds):
        cell = {"seed": seed}
        for other in ("source", "target"):
            text = f"Seed {seed}: both sides have a larger excess BLEU than the {other} alone, in the larger model."
            found.append(_more(f"both > {other}, seed {seed}", text, f"{other}, {LARGE}", cell))
        text = f"Seed {seed}: both sides have a larger excess BLEU in the larger model than in the smaller."
        found.append(_more(f"large > small, seed {seed}", text, f"both, {SMALL}", cell))
        text = f"Seed {seed}: the probe tells injected pairs from others with an AUROC above {FOUND:g} (chance is 0.5)."
        found.append(_probe(f"probe finds, seed {seed}", text, "both", "above", FOUND - 0.5, cell))
    sides: tuple[tuple[Literal["above", "below"], float], ...] = (("above", -BLIND), ("below", BLIND))
    for side, margin in sides:
        text = f"On the clean base the probe's AUROC is {side} {0.5 + margin:g} (chance is 0.5)."
        found.append(_probe(f"probe blind on clean, {side}", text, "base", side, margin, {}))
    return tuple(found)


def _more(name: str, text: str, against: str, cell: dict[str, Any]) -> Criterion:
    return Criterion(
        name=name,
        text=text,
        statistic="difference",
        measure="excess",
        arm=f"both, {LARGE}",
        against=against,
        where=cell,
        side="above",
        level=APART,
    )


def _probe(
    name: str, text: str, branch: str, side: Literal["above", "below"], margin: float, cell: dict[str, Any]
) -> Criterion:
    return Criterion(
        name=name,
        text=text,
        statistic="difference",
        measure="auroc",
        arm=f"probe of {branch}, {LARGE}",
        against="chance",
        where=cell,
        margin=margin,
        side=side,
    )


CLAIM = ContaminationClaim(
    name="contamination",
    title="contaminated translation tests",
    sentence=(
        "Test pairs in training data inflate BLEU most when source and target are there together, and more in a larger "
        "model than in a smaller."
    ),
    paper=PAPER,
    figures=(
        Figure(
            where="source and target together, up to",
            numbers={"8B": 30.0, "1B": 12.0},
            measure="BLEU gained",
            source="the paper's abstract: up to 30 BLEU, 2.5 times the effect at 1B",
        ),
    ),
    arms=tuple(
        Arm(
            name=f"{branch}, {size}",
            use=METHOD,
            settings={"modes": [branch], "copies": [COPIES]} if branch in MODES else {},
            baseline=branch not in MODES,
        )
        for size in (SMALL, LARGE)
        for branch in ("base", "clean", REORDERED, *MODES)
    ),
    criteria=_criteria(2),
    smaller={"smoke": _criteria(1), "demo": _criteria(1)},
    designs={
        "full": Design(small="1.5m", large="12m", seeds=2, settings={"copies": [COPIES]}),
        "demo": Design(small="1.5m", large="12m", seeds=1, settings={"copies": [COPIES]}),
        "smoke": Design(
            small="30k",
            large="100k",
            seeds=1,
            settings={
                "copies": [COPIES],
                "pairs": 20,
                "control": 40,
                "base_pairs": 800,
                "branch_pairs": 200,
                "vocabulary": 512,
                "length": 64,
                "draws": 200,
            },
            made=1100,
        ),
    },
    needs_data="Multi30k's English-German captions (github.com/multi30k/dataset, data/task1/raw), in the folder multi30k of "
    "--data or $BURNISH_DATA",
)
