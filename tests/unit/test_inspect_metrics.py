"""Metrics for Inspect, in a real evaluation of its mock model; and that their absence is said plainly."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from burnish.core.errors import BadInput, MissingExtra
from burnish.stats.clustered import clustered
from burnish.stats.proportion import proportion

here = importlib.util.find_spec("inspect_ai") is not None
needs = pytest.mark.skipif(not here, reason="inspect_ai is not installed (the extra 'inspect')")


@pytest.mark.skipif(here, reason="inspect_ai is installed")
def test_absence_names_the_extra() -> None:
    sys.modules.pop("burnish.evaluate.inspect_metrics", None)
    with pytest.raises(MissingExtra, match="needs the extra 'inspect'"):
        importlib.import_module("burnish.evaluate.inspect_metrics")


def _scores(values, topics=None):
    from inspect_ai.scorer import SampleScore, Score

    topics = topics or [None] * len(values)
    return [
        SampleScore(score=Score(value=value), sample_id=number, sample_metadata={"topic": topic} if topic else {})
        for number, (value, topic) in enumerate(zip(values, topics, strict=True))
    ]


@needs
def test_metrics_are_the_intervals_of_stats() -> None:
    from burnish.evaluate.inspect_metrics import bayes_ci, cluster_bayes_ci

    values = ["C"] * 7 + ["I"] * 3
    alone = proportion(7, 10)
    assert bayes_ci()(_scores(values)) == {"lower": alone.low, "upper": alone.high}
    together = clustered([4, 3], [5, 5])
    found = cluster_bayes_ci("topic")(_scores(["C"] * 4 + ["I"] + ["C"] * 3 + ["I"] * 2, ["a"] * 5 + ["b"] * 5))
    assert found == pytest.approx({"lower": together.low, "upper": together.high})
    with pytest.raises(BadInput, match="10 samples have no metadata 'topic'"):
        cluster_bayes_ci("topic")(_scores(values))
    with pytest.raises(BadInput, match="no sample has a score"):
        bayes_ci()([])
    with pytest.raises(BadInput, match="not between 0 and 1"):
        bayes_ci(level=95)


@needs
@pytest.mark.filterwarnings("ignore")
def test_metrics_work_in_an_evaluation_and_our_reader_reads_its_log(tmp_path) -> None:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import Score, accuracy, scorer
    from inspect_ai.solver import solver

    from burnish.data.logs import read_log
    from burnish.evaluate.inspect_metrics import bayes_ci, cluster_bayes_ci

    @scorer(metrics=[accuracy(), bayes_ci(), cluster_bayes_ci("topic")])
    def even():
        async def score(state, target):
            return Score(value="C" if int(state.sample_id) % 2 == 0 else "I", answer="x")

        return score

    @solver
    def silent():
        async def solve(state, generate):
            return state

        return solve

    data = [Sample(id=n + 1, input=f"question {n}", target="x", metadata={"topic": f"t{n % 3}"}) for n in range(12)]
    for form in ("eval", "json"):
        folder = tmp_path / form
        (log,) = eval(
            Task(dataset=data, solver=silent(), scorer=even()),
            model="mockllm/model",
            log_dir=str(folder),
            log_format=form,
            display="none",
        )
        assert log.status == "success"
        scores = read_log(next(folder.glob(f"*.{form}")), cluster="topic")
        assert scores.column("even").sum() == 6
        assert {row["cluster"] for row in scores.rows()} == {"t0", "t1", "t2"}
        metrics = log.results.scores[0].metrics
        wanted = proportion(6, 12)
        values = {name: one.value for name, one in metrics.items()}
        assert any(value == pytest.approx(wanted.low) for value in values.values()), values
