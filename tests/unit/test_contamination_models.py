"""Contamination measured on models: translations are scored as sacrebleu does, branches are done once, models are read right."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burnish.core.errors import BadInput, MissingExtra
from burnish.core.run import Run
from burnish.data import TINY, bleu
from burnish.data.injection import Pair, draw
from burnish.data.made_pairs import made_pairs
from burnish.engine.generate import score
from burnish.engine.surprise import surprises
from burnish.evaluate.contamination.gains import add_excess, difference, excess, excess_shares
from burnish.evaluate.contamination.measure import ContaminationMeasure
from burnish.models import load, weight_hash
from burnish.models.fresh import SHAPES, new_llama, train_tokenizer

needs_sacrebleu = pytest.mark.skipif(importlib.util.find_spec("sacrebleu") is None, reason="sacrebleu is not installed")


def write(folder: Path, name: str, pairs: list[Pair]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.{side}" for side in ("source", "target")]
    for number, path in enumerate(files):
        path.write_text("".join(f"{pair[number]}\n" for pair in pairs))
    return files


# -- BLEU and chrF ---------------------------------------------------------------------------------------------------

HYPOTHESES = ["the cat sat on the mat .", "a dog runs", "", "two men are walking down the street today"] * 3
REFERENCES = ["the cat sat on a mat .", "the dog runs home", "nothing here", "two men walk down the street today"] * 3


@needs_sacrebleu
@pytest.mark.parametrize("name", bleu.METRICS)
def test_scores_are_sacrebleus_own(name: Any) -> None:
    import sacrebleu

    found = bleu.counts(name, HYPOTHESES, REFERENCES)
    metric = {"bleu": sacrebleu.corpus_bleu, "chrf": sacrebleu.corpus_chrf}[name]
    assert bleu.corpus(name, found) == pytest.approx(metric(HYPOTHESES, [REFERENCES]).score)
    assert bleu.signature(name).startswith(f"{name}|nrefs:1")
    shares = bleu.shares(name, found)
    n = len(found)
    without = [bleu.corpus(name, np.delete(found, i, axis=0)) for i in range(n)]
    assert shares == pytest.approx([n * bleu.corpus(name, found) - (n - 1) * one for one in without])


@needs_sacrebleu
def test_a_difference_is_paired_over_sentences() -> None:
    better = bleu.counts("chrf", REFERENCES, REFERENCES)
    worse = bleu.counts("chrf", HYPOTHESES, REFERENCES)
    gap = difference("chrf", better, worse, draws=400)
    assert gap.estimate == pytest.approx(100 - bleu.corpus("chrf", worse))
    assert 0 < gap.low < gap.estimate < gap.high
    same = difference("chrf", worse, worse, draws=400)
    assert (same.low, same.high) == (0, 0)
    flags = np.arange(12) < 6
    mixed = np.where(flags[:, None], better, worse)
    only = excess("chrf", mixed, worse, flags, 0.95, 400)
    assert only.estimate == pytest.approx(100 - bleu.corpus("chrf", worse[flags]))


@needs_sacrebleu
@pytest.mark.parametrize("name", bleu.METRICS)
def test_shares_of_an_excess_are_its_jackknife_pseudo_values(name: Any) -> None:
    ours = bleu.counts(name, [*HYPOTHESES[:5], *REFERENCES[5:9], *HYPOTHESES[9:]], REFERENCES)
    flags = np.arange(12) % 3 == 0

    def statistic(rows: Any, chosen: Any) -> float:
        return bleu.corpus(name, rows[chosen]) - bleu.corpus(name, rows[~chosen])

    whole = statistic(ours, flags)
    without = [statistic(np.delete(ours, i, axis=0), np.delete(flags, i)) for i in range(12)]
    assert excess_shares(name, ours, flags) == pytest.approx([12 * whole - 11 * one for one in without])


@needs_sacrebleu
def test_what_a_branch_learns_for_all_sentences_is_no_excess() -> None:
    wrong, right = HYPOTHESES * 5, REFERENCES * 5

    def rows(known: int) -> list[dict[str, Any]]:
        made = [*right[:known], *wrong[known:]]
        return [
            {"hypothesis": one, "reference": other, "injected": i < 20}
            for i, (one, other) in enumerate(zip(made, right, strict=True))
        ]

    clean, longer, seen = rows(0), rows(60), rows(20)
    for branch in (longer, seen):
        add_excess(branch, clean)
    # The same four sentences in either set, five and ten times: what is left is the bias of sets of different size.
    assert np.mean([row["chrf_excess"] for row in longer]) == pytest.approx(0, abs=1)
    assert np.mean([row["chrf_excess"] for row in seen]) > 20


def test_without_sacrebleu_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.core.extras.importlib.util.find_spec", lambda name: None)
    bleu._metric.cache_clear()
    with pytest.raises(MissingExtra, match="translation"):
        bleu.counts("bleu", ["a"], ["a"])


# -- new models and made-up text -------------------------------------------------------------------------------------


def test_made_up_pairs_are_the_same_again_and_translate_word_by_word() -> None:
    pairs = made_pairs(50)
    assert pairs == made_pairs(50)
    assert pairs[:10] == made_pairs(10)
    assert pairs != made_pairs(50, 1)
    assert all(len(source.split()) == len(target.split()) for source, target in pairs)
    assert len({source for source, _ in made_pairs(2000)}) > 1900


def test_new_models_follow_from_their_seed() -> None:
    texts = [side for pair in made_pairs(200) for side in pair]
    one, other = train_tokenizer(texts, 400), train_tokenizer(texts, 400)
    assert one.get_vocab() == other.get_vocab()
    assert len(one) == 400
    text = "Straße 🦊 three\tdogs"
    assert one.decode(one.encode(text, add_special_tokens=False)) == text
    made = [new_llama("m", SHAPES["30k"], one, 64, seed) for seed in (1, 1, 2)]
    hashes = [weight_hash(model) for model in made]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(("name", "parameters"), [("1.5m", 1.5e6), ("12m", 12e6)])
def test_sizes_are_what_their_names_say(name: str, parameters: float) -> None:
    class Vocabulary:
        bos_token_id, eos_token_id = 0, 1

        def __len__(self) -> int:
            return 4096

    model = new_llama(name, SHAPES[name], Vocabulary(), 128, 0)
    assert sum(weight.numel() for weight in model.net.parameters()) == pytest.approx(parameters, rel=0.06)


def test_the_pairs_that_are_drawn_depend_on_the_generator_alone() -> None:
    drawn = [
        draw(train, 50, 10, copies, position, 0.2, np.random.default_rng(3)).chosen
        for train, copies, position in ((100, 1, "early"), (30, 8, "uniform"), (1, 2, "late"))
    ]
    assert drawn[0] == drawn[1] == drawn[2]


# -- reading ---------------------------------------------------------------------------------------------------------


def test_surprises_are_log_probabilities_and_moments_of_the_models_own_distribution() -> None:
    model = load(str(TINY))
    texts = [model.tokenizer(text)["input_ids"] for text in ("Return a new list of the items.", "def", "in the module")]
    found = surprises(model, texts, batch_tokens=8)
    again = surprises(model, texts)
    for ids, one, other in zip(texts, found, again, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert len(one.logprobs) == len(one.means) == len(one.deviations) == len(ids) - 1
        if len(ids) < 2:
            continue
        assert one.logprobs == pytest.approx(score(model, [(ids[:1], ids[1:])])[0], abs=1e-4)
        logs = model.net(input_ids=torch.tensor([ids])).logits[0, -2].double().log_softmax(-1)
        assert one.means[-1] == pytest.approx((logs.exp() * logs).sum().item(), abs=1e-4)
        spread = (logs.exp() * logs**2).sum() - (logs.exp() * logs).sum() ** 2
        assert one.deviations[-1] == pytest.approx(spread.sqrt().item(), abs=1e-3)


def test_texts_are_read_in_pieces_that_hold_few_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    from burnish.engine import surprise

    model = load(str(TINY))
    texts = [model.tokenizer(text)["input_ids"] for text in ("Return a new list of the items in the module.", "def f")]
    whole = surprises(model, texts)
    vocabulary = model.net.config.vocab_size
    seen, reduced = [], []
    forward, taken = model.net.forward, surprise._taken

    def watched(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        seen.append(out.logits.numel())
        return out

    def counted(logits: Any, *rest: Any) -> Any:
        reduced.append(logits.numel())
        return taken(logits, *rest)

    monkeypatch.setattr(model.net, "forward", watched)
    monkeypatch.setattr(surprise, "_taken", counted)
    monkeypatch.setattr(surprise, "LOGITS_AT_ONCE", 2 * 3 * vocabulary)
    monkeypatch.setattr(surprise, "REDUCED_AT_ONCE", 4 * vocabulary)
    for one, other in zip(surprises(model, texts), whole, strict=True):
        for name in ("logprobs", "means", "deviations"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-4)
    places = len(texts[0]) - 1
    assert places > 6
    assert len(seen) == -(-places // 3)
    assert max(seen) == 2 * 3 * vocabulary
    assert max(reduced) == 4 * vocabulary
    assert sum(reduced) == sum(seen) == 2 * places * vocabulary

    monkeypatch.setattr(surprise, "_expected", lambda *_: pytest.fail("moments that nobody asked for"))
    for one, other in zip(surprises(model, texts, moments=False), whole, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert one.means == one.deviations == []


# -- measure ---------------------------------------------------------------------------------------------------------

SMALL = {"sizes": ("30k",), "pairs": 8, "control": 8, "base_pairs": 60, "branch_pairs": 20, "vocabulary": 320,
         "length": 64, "draws": 200}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pairs")
    train, test = made_pairs(90), [*made_pairs(30, 1), *made_pairs(2)]
    return [*write(folder, "train", train), *write(folder, "test", test)]


@needs_sacrebleu
def test_every_branch_is_trained_once_and_stands_beside_the_clean_one(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from burnish.evaluate.contamination import branches

    trained: list[str] = []
    whole = branches.Laboratory.run

    def stops(self: Any, branch: Any) -> Any:
        if len(trained) == 2:
            trained.append("stop")
            raise KeyboardInterrupt
        trained.append(branch.name)
        return whole(self, branch)

    monkeypatch.setattr(branches.Laboratory, "run", stops)
    method = ContaminationMeasure(modes=("source", "both"), copies=(2,), **SMALL)
    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "run") as run:
        method(*files, run=run)
    with Run(tmp_path / "run") as run:
        scores = method(*files, run=run)
    assert trained == ["clean", "reordered", "stop", "source x2 uniform", "both x2 uniform"]
    with monkeypatch.context() as patch, Run(tmp_path / "run") as run:
        patch.setattr(branches, "train_tokenizer", lambda *_: pytest.fail("a vocabulary that nothing needs"))
        assert method(*files, run=run).rows() == scores.rows()
    assert len(trained) == 5
    with Run(tmp_path / "other") as other:
        trained.append("")
        assert method(*files, run=other).rows() == scores.rows()
    assert not list(tmp_path.rglob("*.safetensors"))

    rows = scores.rows()
    assert {row["branch"] for row in rows} == {"base", "clean", "reordered", "source x2 uniform", "both x2 uniform"}
    assert len(rows) == 5 * 16
    injected = {row["item_id"] for row in rows if row["injected"]}
    assert len(injected) == 8
    assert all(int(row["item_id"]) < 30 for row in rows)  # the last two stand in the training data
    by_branch = {name: [row for row in rows if row["branch"] == name] for name in {row["branch"] for row in rows}}
    assert [r["reference_nll"] for r in by_branch["both x2 uniform"]] == [r["nll"] for r in by_branch["clean"]]
    told = json.loads((run.artifact / "gains.json").read_text())
    for group, flag in (("injected", True), ("control", False)):
        shares = [row["chrf"] for row in by_branch["clean"] if row["injected"] == flag]
        assert np.mean(shares) == pytest.approx(told["30k, seed 0, clean"][f"chrf_{group}"], abs=5)
    both = told["30k, seed 0, both x2 uniform"]
    assert both["chrf_gain_injected"][0] == pytest.approx(
        both["chrf_injected"] - told["30k, seed 0, clean"]["chrf_injected"]
    )
    assert run.metrics["BLEU gained, 30k, both x2 uniform"] == pytest.approx(both["bleu_gain_injected"][0])
    assert both["chrf_excess"][0] == pytest.approx(both["chrf_gain_injected"][0] - both["chrf_gain_control"][0])
    assert np.mean([row["chrf_excess"] for row in by_branch["both x2 uniform"]]) == pytest.approx(
        both["chrf_excess"][0], abs=5
    )
    assert run.metrics["Excess BLEU, 30k, reordered"] == told["30k, seed 0, reordered"]["bleu_excess"][0]
    assert {row["chrf_excess"] for row in by_branch["clean"]} == {0.0}
    assert by_branch["reordered"][0]["nll"] != by_branch["clean"][0]["nll"]
    assert len(run.metrics["gains"]) == 5


def test_what_cannot_be_measured_is_refused(files: list[Path]) -> None:
    for settings, said in (
        ({"template": "{target} {source}"}, "ends with"),
        ({"modes": ("both", "both")}, "none twice"),
        ({"control": 1}, "at least 2"),
    ):
        with pytest.raises(BadInput, match=said):
            ContaminationMeasure.build(settings)
    if importlib.util.find_spec("sacrebleu") is not None:
        with pytest.raises(BadInput) as error:
            ContaminationMeasure(**{**SMALL, "pairs": 40, "base_pairs": 100})(*files)
        assert "90 training pairs, and 100 + 20" in error.value.problem
        assert "30 test pairs (2 are training lines, or nearly)" in error.value.problem


@needs_sacrebleu
def test_sources_that_leave_no_room_are_named_before_anything_is_trained(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burnish.evaluate.contamination.branches.pretrain", lambda *_, **__: pytest.fail("trained"))
    pairs = made_pairs(30, 1)
    pairs[4] = (" ".join("abcdefghij" * 9), "short")
    long = write(tmp_path, "long", pairs)
    with pytest.raises(BadInput, match=r"context of 64\n +line 5: its source takes \d+ tokens"):
        ContaminationMeasure(**{**SMALL, "control": -1})(*files[:2], *long)


@needs_sacrebleu
def test_copies_that_do_not_fit_the_window_are_told(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from burnish.evaluate.contamination.branches import Laboratory

    def row(place: int) -> dict[str, Any]:
        return {
            "place": place,
            "hypothesis": "a b c",
            "logprobs": [-1.0],
            "mean_logprobs": [-1.0],
            "std_logprobs": [1.0],
        }

    def used(self: Laboratory, *_: Any) -> dict[str, Any]:
        return {"rows": [row(place) for place in (*self.split.injected, *self.split.control)]}

    for name in ("run", "read_base"):
        monkeypatch.setattr(Laboratory, name, used)
    monkeypatch.setattr(Laboratory, "train_base", lambda self: {})
    run = Run.scratch()
    ContaminationMeasure(modes=("both",), copies=(1, 8), positions=("early", "uniform"), window=0.3, **SMALL)(
        *files, run=run
    )
    # 8 pairs once are 8 lines of 28, and 64 of 84 when eight times; 0.3 of these would be 8, and 25.
    assert run.metrics["windows"] == pytest.approx(
        {"both x1 early": 0.2857, "both x1 uniform": 1, "both x8 early": 0.7619, "both x8 uniform": 1}
    )
    assert run.metrics["widened"] == [
        "both x8 early: 64 copies fill 0.76 of the lines, more than the 0.3 that was to be early: "
        "fewer copies or a larger window"
    ]
