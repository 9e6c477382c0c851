"""Arena curate (BenchBuilder): from a heap of users' prompts to a benchmark of hard and varied ones.

## How it works

1. Prompts: all turns of the user as one text; other languages (where the file has the column `language`), texts of up to
   32 characters and repeats are dropped, long ones cut at 10,000 characters.
2. Topics: sentence embeddings, UMAP to 5 dimensions, HDBSCAN; a prompt outside every dense group joins the topic whose
   mean is nearest by cosine.
3. A language model marks which of seven criteria each prompt meets (specificity, domain knowledge, complexity,
   problem-solving, creativity, technical accuracy, real-world use); the score is their number.
4. Stage 1 keeps prompts with a score of at least `min_score` in topics with a mean score of at least `min_mean`. Stage 2
   has a second, better annotator mark those, and keeps by `second_score` and `second_mean`.
5. From up to `topics` of the topics that are left `per_topic` prompts each are drawn. Topics are named by the annotator.

The run folder gets ``artifact/question.jsonl`` in the format of the released benchmark, which `arena judge` reads.

## Differences

From the paper and the released filter.py and topic clustering:

* UMAP has no fixed state there, so no two runs agree. Here one seed fixes it, and the draw: twice the same call, twice
  the same file.
* There the filtered prompts are zipped with the unfiltered list of clusters, which names clusters wrongly. Here a prompt
  carries its topic.
* There an annotator's list counts only with ", " between the numbers; "[1,2,3]" becomes a score of 0, as does no list at
  all. Here blanks do not matter, and what cannot be read is "unparsed": counted, shown and left out of every mean.
* Outliers go to the nearest topic in the space of the embeddings, not by word frequencies; their share is shown.
* The embeddings are MiniLM's, which run anywhere and read the first 256 tokens, not text-embedding-3-small's; others can
  be given.
* The paper leaves out conversations of several turns; here, as in its code, their turns are joined. It marks once, with
  a good annotator, and keeps scores of 6 in topics with a mean of 5: the defaults of stage 2. The code's 5 and 3 are
  those of stage 1, for a cheap one.
* The released prompt of the annotator's topics also shows key words of the topic.
* The criteria are in burnish's own words. Only topics that are drawn are named, which saves calls.

## When not to use it

The criteria pick long and technical prompts: the result measures hard questions, not everyday use. Small annotators mark
poorly; look at a few scores first. Topics of a few hundred prompts are crude.

## References

Li et al., arXiv 2406.11939, section 4; lmarena/arena-hard-auto, folder BenchBuilder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.extras import require
from burnish.core.files import write_text
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Analysis
from burnish.data.prompts import Prompt, read_prompts
from burnish.data.scores import Table
from burnish.evaluate.arena import PAPER
from burnish.evaluate.arena.criteria import CRITERIA, criteria_chat, parse_criteria, parse_topic, topic_chat
from burnish.evaluate.arena.topics import Topics, find_topics
from burnish.llm import LLM, Sampling
from burnish.llm.server import estimate as tokens_of

MARKS = Sampling(temperature=0, max_tokens=32)
"""How criteria and topics are asked for."""
SHOWN, SHOWN_CHARACTERS = 50, 500
"""Prompts that the annotator sees of a topic, and how much of each."""


class ArenaCurate(Analysis):
    """Curate a benchmark from users' prompts: topics, seven criteria, two stages, a stratified draw."""

    paper: ClassVar[Paper | None] = PAPER
    needs: ClassVar[tuple[str, ...]] = ("cluster",)

    embedder: str = "minilm"
    """Sentence-embedding model, a name or a folder; not used where embeddings are given."""
    reduce: Literal["umap", "pca"] = "umap"
    """How embeddings lose dimensions: UMAP as in the paper, or principal components, which are quicker."""
    neighbours: Annotated[int, Field(ge=2)] = 15
    """UMAP's neighbours; BERTopic's default."""
    components: Annotated[int, Field(ge=2)] = 5
    """Dimensions to reduce to; BERTopic's default."""
    min_cluster: Annotated[int, Field(ge=2)] = 8
    """Prompts in the smallest topic; 8 in the README of BenchBuilder (32 in its code)."""
    min_score: Annotated[int, Field(ge=0, le=7)] = 5
    """Stage 1: fewest criteria of a prompt; filter.py."""
    min_mean: Annotated[float, Field(ge=0, le=7)] = 3
    """Stage 1: lowest mean score of a topic; filter.py."""
    second_score: Annotated[int, Field(ge=0, le=7)] = 6
    """Stage 2: fewest criteria of a prompt; section 4.2 of the paper."""
    second_mean: Annotated[float, Field(ge=0, le=7)] = 5
    """Stage 2: lowest mean score of a topic; section 4.2 of the paper."""
    topics: Annotated[int, Field(ge=1)] = 250
    """Topics of the benchmark; 250 in the paper."""
    per_topic: Annotated[int, Field(ge=1)] = 2
    """Prompts of each; 2 in the paper."""
    category: str = "arena-hard"
    """What the questions' category is called."""
    name_topics: bool = True
    """Let the annotator name the topics; else they are numbered."""

    def __call__(
        self,
        prompts: Path,
        annotator: LLM,
        second: LLM | None = None,
        embeddings: Path | None = None,
        run: Run | None = None,
    ) -> Table:
        """Curate.

        Args:
            prompts: A file with the column prompt (or text, turns, conversation).
            annotator: Marks all prompts, and names topics.
            second: Marks what stage 1 keeps; without it there is no stage 2.
            embeddings: A .npy file with a row for each row of `prompts`, instead of the embedder.
            run: Where the benchmark goes: ``artifact/question.jsonl``.

        Returns:
            A row a prompt that was not dropped at once: item_id, cluster (its topic's number), topic (its name, where
            it has one), outlier, a column a criterion, score and second_score (null where unread or not asked), fate
            ("kept", "not drawn", or what ruled it out: "unparsed", "score", "topic", "second unparsed", "second score",
            "second topic").

        Raises:
            BadInput: no usable prompts, too few for topics, embeddings that do not fit, an annotator whose answers
                cannot be read, or nothing left.
        """
        run = ensure(run)
        kept, dropped = read_prompts(prompts)
        run.event("prompts", kept=len(kept), dropped=dict(dropped), calls=len(kept))
        vectors = self._vectors(kept, embeddings, run)
        topics = find_topics(
            vectors,
            reduce=self.reduce,
            neighbours=self.neighbours,
            components=self.components,
            smallest=self.min_cluster,
            seed=run.seed_of("arena curate/topics") % 2**31,
        )
        fate: list[str] = [""] * len(kept)
        everyone = list(range(len(kept)))
        marks = _annotate(annotator, kept, everyone, run)
        left = _stage(everyone, marks, topics, fate, "", self.min_score, self.min_mean)
        better: dict[int, frozenset[int] | None] = {}
        if second is not None:
            better = _annotate(second, kept, left, run)
            left = _stage(left, better, topics, fate, "second ", self.second_score, self.second_mean)
        drawn = self._draw(left, topics, run)
        for row in left:
            fate[row] = "kept" if row in drawn else "not drawn"
        if not drawn:
            raise BadInput.of(
                "no prompt is left",
                [f"{count} ruled out: {why}" for why, count in Counter(fate).most_common()],
                "lower the thresholds, ask for fewer prompts a topic, or give more prompts",
            )
        names = self._names(annotator, kept, topics, drawn, run)
        self._write(run, kept, topics, names, drawn)
        notes = self._notes(kept, dropped, topics, fate, drawn)
        run.metric(**{name: value for name, value in notes.items() if isinstance(value, int | float)})
        return Table.of(_rows(kept, topics, names, marks, better, fate), **notes)

    def estimate(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """Calls and tokens, before anything is asked; the second annotator's as if the first kept every prompt."""
        kept, _ = read_prompts(Path(sources["prompts"]))
        asked = sum(tokens_of(message["content"]) for one in kept for message in criteria_chat(one.text))
        calls = len(kept) + (self.topics if self.name_topics else 0)
        found = {"prompts": len(kept), "calls_at_most": calls, "prompt_tokens_about": asked}
        if sources.get("second"):
            found |= {"second_calls_at_most": len(kept), "second_prompt_tokens_at_most": asked}
        return found

    def _vectors(self, kept: Sequence[Prompt], embeddings: Path | None, run: Run) -> NDArray[np.float32]:
        """(prompts, dimensions)."""
        if embeddings is not None:
            return _given(Path(embeddings), kept)
        require("embedding prompts", "models")
        texts = [one.text for one in kept]
        digest = hashlib.sha256(json.dumps([self.embedder, texts]).encode()).hexdigest()[:16]
        path = run.folder / f"embeddings-{digest}.npy"
        if not path.exists():
            from burnish.engine.embed import Embedder
            from burnish.models.resolve import resolve

            found = Embedder(resolve(self.embedder).folder).embed(texts)
            beside = path.with_name(f".{path.name}.{os.getpid()}.tmp.npy")
            np.save(beside, found)
            os.replace(beside, path)
        return np.asarray(np.load(path, allow_pickle=False))

    def _draw(self, left: Sequence[int], topics: Topics, run: Run) -> set[int]:
        """`per_topic` prompts of each of at most `topics` topics that have so many."""
        rng = run.rng("arena curate/draw")
        members: dict[int, list[int]] = {}
        for row in left:
            members.setdefault(int(topics.labels[row]), []).append(row)
        able = sorted(topic for topic, rows in members.items() if len(rows) >= self.per_topic)
        chosen = sorted(rng.permutation(able)[: self.topics].tolist())
        return {int(row) for topic in chosen for row in rng.permutation(members[topic])[: self.per_topic]}

    def _names(
        self, annotator: LLM, kept: Sequence[Prompt], topics: Topics, drawn: set[int], run: Run
    ) -> dict[int, str]:
        """Names of the topics that are drawn from; two with the same name are told apart by their numbers."""
        numbers = sorted({int(topics.labels[row]) for row in drawn})
        if not self.name_topics:
            return {number: f"Topic {number}" for number in numbers}
        chats = [
            topic_chat([kept[row].text[:SHOWN_CHARACTERS] for row in topics.central[number][:SHOWN]])
            for number in numbers
        ]
        replies = annotator.generate(chats, MARKS, run)
        names = {number: parse_topic(reply.text, number) for number, reply in zip(numbers, replies, strict=True)}
        common = {name for name, count in Counter(names.values()).items() if count > 1}
        return {number: f"{name} ({number})" if name in common else name for number, name in names.items()}

    def _write(
        self, run: Run, kept: Sequence[Prompt], topics: Topics, names: Mapping[int, str], drawn: set[int]
    ) -> None:
        order = sorted(drawn, key=lambda row: (int(topics.labels[row]), kept[row].uid))
        lines = [
            {
                "uid": kept[row].uid,
                "category": self.category,
                "cluster": names[int(topics.labels[row])],
                "prompt": kept[row].text,
            }
            for row in order
        ]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_text(run.artifact / "question.jsonl", text)

    def _notes(
        self, kept: Sequence[Prompt], dropped: Counter[str], topics: Topics, fate: Sequence[str], drawn: set[int]
    ) -> dict[str, Any]:
        counts = Counter(fate)
        chosen = {int(topics.labels[row]) for row in drawn}
        notes = {
            "prompts": len(kept),
            "topics": len(topics.central),
            "outlier_share": float(topics.outlier.mean()),
            "unparsed": counts["unparsed"] + counts["second unparsed"],
            "questions": len(drawn),
            "topics_drawn": len(chosen),
            "dropped": dict(sorted(dropped.items())),
            "fates": dict(sorted(counts.items())),
        }
        if len(chosen) < self.topics:
            notes["note"] = f"{self.topics} topics were asked for, and {len(chosen)} have {self.per_topic} good prompts"
        return notes


def _annotate(llm: LLM, kept: Sequence[Prompt], rows: Sequence[int], run: Run) -> dict[int, frozenset[int] | None]:
    """The criteria that each of those prompts meets; None where the answer cannot be read."""
    replies = llm.generate([criteria_chat(kept[row].text) for row in rows], MARKS, run)
    marks = {row: parse_criteria(reply.text) for row, reply in zip(rows, replies, strict=True)}
    if rows and all(found is None for found in marks.values()):
        raise BadInput(
            f"none of the {len(rows)} answers of {llm.name} is a list of numbers, e.g. {replies[0].text[:80]!r}",
            "use a model that follows instructions",
        )
    return marks


def _stage(
    rows: Sequence[int],
    marks: Mapping[int, frozenset[int] | None],
    topics: Topics,
    fate: list[str],
    stage: str,
    least: int,
    mean: float,
) -> list[int]:
    """The rows that pass; the fate of the others is written down."""
    scores = {row: len(found) for row in rows if (found := marks[row]) is not None}
    of_topic: dict[int, list[int]] = {}
    for row, score in scores.items():
        of_topic.setdefault(int(topics.labels[row]), []).append(score)
    good = {topic for topic, found in of_topic.items() if sum(found) / len(found) >= mean}
    left = []
    for row in rows:
        if row not in scores:
            fate[row] = f"{stage}unparsed"
        elif int(topics.labels[row]) not in good:
            fate[row] = f"{stage}topic"
        elif scores[row] < least:
            fate[row] = f"{stage}score"
        else:
            left.append(row)
    return left


def _given(path: Path, kept: Sequence[Prompt]) -> NDArray[np.float32]:
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is no .npy file of numbers: {error}", "write it with numpy.save") from None
    rows = [one.row for one in kept]
    if found.ndim != 2 or not np.issubdtype(found.dtype, np.floating) or len(found) <= max(rows):
        raise BadInput(
            f"{path} holds {found.dtype} of shape {found.shape}",
            "a row of floats is needed for each of the file's rows",
        )
    found = found[rows].astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(found).all(1) | ~found.any(1))
    if len(bad):
        raise BadInput(f"{path} has rows that are not finite, or all 0: {[rows[place] for place in bad[:10]]}")
    return found


def _rows(
    kept: Sequence[Prompt],
    topics: Topics,
    names: Mapping[int, str],
    marks: Mapping[int, frozenset[int] | None],
    better: Mapping[int, frozenset[int] | None],
    fate: Sequence[str],
) -> list[dict[str, Any]]:
    rows = []
    for place, one in enumerate(kept):
        found, again = marks[place], better.get(place)
        topic = int(topics.labels[place])
        row: dict[str, Any] = {"item_id": one.uid, "cluster": topic, "topic": names.get(topic, "")}
        row["outlier"] = bool(topics.outlier[place])
        row |= {name: None if found is None else n in found for n, name in enumerate(CRITERIA, 1)}
        row |= {
            "score": None if found is None else len(found),
            "second_score": None if again is None else len(again),
            "fate": fate[place],
        }
        rows.append(row)
    return rows
