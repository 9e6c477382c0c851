"""The usual shapes of a method: one thin base for each verb.

A base says what is taken and given and nothing more, so that a method's own ``__call__`` stays the whole truth about
its goods. Parameters may be narrower than shown (a method that needs no calibration text takes none).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from burnish.core.method import Method

Verb = Literal["compress", "serve", "train", "synthesize", "search", "evaluate", "modalities"]


class Compressor(Method):
    """``(model: Model, calib: Dataset | None, run: Run | None) -> Model``: the same model, smaller."""

    verb: ClassVar[Verb] = "compress"
    needs: ClassVar[tuple[str, ...]] = ("models",)


class Attachment(Method):
    """Something that a model is served with: ``prepare`` makes its artifact once, ``on`` attaches it and detaches it.

    ``__call__`` is ``prepare``: ``(model: Model, data: Dataset | None, run: Run | None) -> Path``.
    """

    verb: ClassVar[Verb] = "serve"
    needs: ClassVar[tuple[str, ...]] = ("models",)


class Trainer(Method):
    """``(model: Model, data: Dataset, run: Run | None) -> Model``: the same architecture, other weights."""

    verb: ClassVar[Verb] = "train"
    needs: ClassVar[tuple[str, ...]] = ("models", "train")


class Transform(Method):
    """``(data: Dataset, run: Run | None) -> Dataset``: rows in, other rows out."""

    verb: ClassVar[Verb] = "synthesize"


class Synthesizer(Method):
    """``(seed: Dataset | Path, llm: LLM | None, run: Run | None) -> Dataset``: new data."""

    verb: ClassVar[Verb] = "synthesize"


class Searcher(Method):
    """``(problem: Problem, llm: LLM | None, run: Run | None) -> Solution``: programs, their scores, the history."""

    verb: ClassVar[Verb] = "search"


class Evaluation(Method):
    """``(subject, …, judge: LLM | None, run: Run | None) -> Scores``: a row for every item, never only a mean."""

    verb: ClassVar[Verb] = "evaluate"


class Analysis(Method):
    """``(scores: Scores | Table, run: Run | None) -> Table``: what a table of results says."""

    verb: ClassVar[Verb] = "evaluate"
