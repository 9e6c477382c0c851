"""Contamination score: every token of a text counts for every model, what was read is kept, and faults name their lines."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burnish.core.errors import BadInput
from burnish.core.run import Run
from burnish.data import TINY
from burnish.data.injection import Pair
from burnish.data.made_pairs import made_pairs
from burnish.data.scores import Scores
from burnish.engine import Generated
from burnish.engine.generate import score
from burnish.evaluate.contamination import score as module
from burnish.evaluate.contamination.probe import ContaminationProbe
from burnish.evaluate.contamination.score import ContaminationScore
from burnish.models import Model, load


def write(folder: Path, name: str, pairs: list[Pair]) -> list[Path]:
    files = [folder / f"{name}.{side}" for side in ("source", "target")]
    for number, path in enumerate(files):
        path.write_text("".join(f"{pair[number]}\n" for pair in pairs))
    return files


@pytest.fixture
def model() -> Model:
    return load(str(TINY))


def begins_by_itself(model: Model) -> Model:
    """With a tokenizer that puts a token before each text, and one after it."""
    from tokenizers.processors import TemplateProcessing

    token = model.tokenizer.bos_token
    model.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{token} $A {token}", special_tokens=[(token, model.tokenizer.bos_token_id)]
    )
    assert model.tokenizer("a")["input_ids"][0] == model.tokenizer("a")["input_ids"][-1] == model.tokenizer.bos_token_id
    return model


def test_a_model_reads_a_test_set_and_the_probe_reads_that(tmp_path: Path) -> None:
    model = load(str(TINY))
    (source, target) = write(tmp_path, "test", [*made_pairs(6), ("", "")])
    run = Run.scratch()
    rows = ContaminationScore()(model, source, target, model, run=run).rows()
    assert [row["item_id"] for row in rows] == [str(number) for number in range(6)]
    assert all(0 <= row["completion"] <= 1 for row in rows)
    assert [row["reference_nll"] for row in rows] == pytest.approx([row["nll"] for row in rows])
    probed = ContaminationProbe()(Scores.of(rows)).rows()
    assert {"loss", "ratio", "min_k", "min_k_pp", "completion"} <= probed[0].keys()
    assert [row["ratio"] for row in probed] == pytest.approx([0.0] * 6, abs=1e-6)
    alone = ContaminationScore(prefix=0, limit=3)(model, source).rows()
    assert len(alone) == 3
    assert "completion" not in alone[0]


def test_orders_of_a_file_are_read_shard_by_shard(tmp_path: Path) -> None:
    model = load(str(TINY))
    path = tmp_path / "test"
    path.write_text("".join(f"{source}\n" for source, _ in made_pairs(12)))
    rows = ContaminationScore(look="order", shards=3, orders=4)(model, path).rows()
    assert [len(row["shuffled_logprobs"]) for row in rows] == [4] * 3
    run = Run.scratch()
    ContaminationProbe()(Scores.of(rows), run=run)
    assert 0 < run.metrics["p_value"] <= 1
    with pytest.raises(BadInput, match="12 lines, and 20 shards"):
        ContaminationScore(look="order")(model, path)


# -- every token counts ----------------------------------------------------------------------------------------------


def test_models_with_and_without_a_token_before_the_text_are_compared_on_all_of_it(
    model: Model, tmp_path: Path
) -> None:
    path = write(tmp_path, "test", made_pairs(4))[0]
    for other in (load(str(TINY)), begins_by_itself(load(str(TINY)))):
        for ours, theirs in ((model, other), (other, model)):
            rows = ContaminationScore(prefix=0)(ours, path, reference=theirs).rows()
            assert [row["reference_nll"] for row in rows] == pytest.approx([row["nll"] for row in rows], abs=1e-4)
    ids = model.tokenizer(made_pairs(1)[0][0])["input_ids"]
    assert rows[0]["logprobs"] == pytest.approx(score(model, [([model.tokenizer.bos_token_id], ids)])[0], abs=1e-4)


def test_a_model_that_skips_a_first_token_is_compared_with_its_like_alone(model: Model, tmp_path: Path) -> None:
    path = write(tmp_path, "test", [("Return a new list", ""), ("a", ""), ("", ""), ("def", "")])[0]
    bare = load(str(TINY))
    bare.tokenizer.bos_token = bare.tokenizer.eos_token = None
    run = Run.scratch()
    rows = ContaminationScore(prefix=0)(bare, path, reference=bare, run=run).rows()
    assert [row["item_id"] for row in rows] == ["0"]  # the others have no token before one
    assert run.metrics["left_out"] == 3
    assert len(rows[0]["logprobs"]) == len(bare.tokenizer("Return a new list")["input_ids"]) - 1
    assert rows[0]["reference_nll"] == pytest.approx(rows[0]["nll"])
    with pytest.raises(BadInput, match="no token to begin a text with"):
        ContaminationScore(prefix=0)(model, path, reference=bare)
    assert len(ContaminationScore(prefix=0)(model, path).rows()) == 3


def test_windows_of_a_long_text_read_each_token_once(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = module._Reader.of(model)
    text = " ".join(source for source, _ in made_pairs(20))
    whole = reader.log_probability(text)
    monkeypatch.setattr(module._Reader, "room", 16)
    read: list[list[int]] = []
    surprises = module.surprises

    def watched(model: Model, texts: Any, **options: Any) -> Any:
        read.extend(texts)
        return surprises(model, texts, **options)

    monkeypatch.setattr(module, "surprises", watched)
    parts = reader.log_probability(text)
    assert [*read[0], *(token for piece in read[1:] for token in piece[1:])] == reader.ids(text)
    assert all(a[-1] == b[0] and len(a) == 16 for a, b in pairwise(read))
    assert parts < 0
    assert whole < 0


# -- the rest of a target --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "before"),
    [
        ("{source}\t{target}", "x y z\t"),
        ("{source} => {target} [x y z]!", "x y z => "),
        ("To write: {target}, of {source}", "To write: "),
        ("({target}) {source}, x y z", "("),
    ],
)
def test_what_is_to_be_completed_is_the_target_wherever_it_stands_in_the_template(
    template: str, before: str, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[int], int]] = []

    def written(model: Model, prompts: Any, each: Any, **_: Any) -> list[Generated]:
        asked.extend((prompt, one.max_tokens) for prompt, one in zip(prompts, each, strict=True))
        return [Generated([-1], [0.0], "length", "") for _ in prompts]

    monkeypatch.setattr(module, "generate", written)
    # The target stands in the source too, and the other way round.
    rows = ContaminationScore(template=template, prefix=0.5)(
        model, *write(tmp_path, "test", [("x y z", "x y z")])
    ).rows()
    reader = module._Reader.of(model)
    ids, begin = reader.ids(f"{before}x y z"), len(reader.ids(before))
    given = begin + round((len(ids) - begin) / 2)
    assert asked == [(ids[:given], len(ids) - given)]
    assert rows[0]["completion"] == 0


@pytest.mark.parametrize("wrong", [0, 2, 99])
def test_what_is_written_counts_up_to_the_first_difference(
    wrong: int, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = module._Reader.of(model)
    line = "Return a new list of the items in the module."
    rest = reader.ids(line)[1 + round((len(reader.ids(line)) - 1) * 0.25) :]
    written = [-1 if place == wrong else token for place, token in enumerate(rest)]
    monkeypatch.setattr(module, "generate", lambda *_, **__: [Generated(written, [], "length", "")])
    found = ContaminationScore(prefix=0.25)(model, write(tmp_path, "test", [(line, "")])[0]).rows()
    assert found[0]["completion"] == pytest.approx(min(wrong, len(rest)) / len(rest))


# -- going on, and refusals ------------------------------------------------------------------------------------------


class Stopped(Exception):
    pass


@pytest.mark.parametrize("settings", [{"prefix": 0.5}, {"look": "order", "shards": 4, "orders": 3}], ids=str)
def test_a_run_that_was_stopped_goes_on_where_it_was(
    settings: dict[str, Any], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 3)
    path = write(tmp_path, "test", made_pairs(12))[0]
    method = ContaminationScore(batch_size=1, **settings)
    whole = method(model, path).rows()
    surprises, left = module.surprises, [2 if "prefix" in settings else 5]
    read = np.zeros(1, dtype=int)

    def counted(*args: Any, **options: Any) -> Any:
        if not left[0]:
            raise Stopped
        left[0] -= 1
        read[0] += 1
        return surprises(*args, **options)

    monkeypatch.setattr(module, "surprises", counted)
    with pytest.raises(Stopped), Run(tmp_path / "run") as run:
        method(model, path, run=run)
    stopped, left[0] = int(read[0]), 99
    with Run(tmp_path / "run") as run:
        assert method(model, path, run=run).rows() == whole
    # Two groups of four were done, or one shard of four and one of its four orders.
    assert (stopped, int(read[0]) - stopped) == ((2, 2) if "prefix" in settings else (5, 12))
    with Run(tmp_path / "run") as run:
        assert method(model, path, run=run).rows() == whole
    assert read[0] == stopped + (2 if "prefix" in settings else 12)
    path.write_text("".join(f"{source}.\n" for source, _ in made_pairs(12)))
    with Run(tmp_path / "run") as run:
        assert method(model, path, run=run).rows() != whole


def test_lines_beyond_the_context_are_named_before_any_is_read(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "surprises", lambda *_, **__: pytest.fail("read"))
    pairs = [("", ""), ("fine", ""), ("long " * 600, ""), ("", ""), ("longer " * 700, "")]
    with pytest.raises(BadInput) as error:
        ContaminationScore()(model, write(tmp_path, "test", pairs)[0])
    said = error.value.problem.splitlines()
    assert [line.split(":")[0].strip() for line in said[1:]] == ["line 3", "line 5"]


def test_pairs_with_an_empty_side_are_left_out(model: Model, tmp_path: Path) -> None:
    files = write(tmp_path, "test", [("a source", "ein Ziel"), ("a source", " "), ("", "ein Ziel"), ("more", "mehr")])
    run = Run.scratch()
    rows = ContaminationScore()(model, *files, run=run).rows()
    assert [row["item_id"] for row in rows] == ["0", "3"]
    assert run.metrics["left_out"] == 2
