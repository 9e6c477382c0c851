"""Judging, scoring and validity of Arena-Hard-Auto, end to end on small made-up games."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from scipy.special import expit

from burnish.core.errors import BadInput, UnknownName
from burnish.core.run import Run
from burnish.data.arena_hard import VERDICTS, Game, read_judgments
from burnish.data.scores import read_table
from burnish.evaluate.arena.judge import ArenaJudge
from burnish.evaluate.arena.score import ArenaScore
from burnish.evaluate.arena.validity import ArenaValidity
from burnish.llm import Reply, Usage, record
from burnish.llm.budget import Spent
from burnish.llm.client import Journaled, Request
from burnish.llm.replay import Replay

MODELS = ("weak", "strong", "windy")
MEAN = {"weak": -0.8, "strong": 0.7, "windy": 0.2}


class Ruled(Journaled):
    """A judge by rule: what it says is a function of the chat."""

    def __init__(self, rule: Callable[[str, str], str], name: str = "ruled") -> None:
        super().__init__()
        self.rule, self.name, self.asked = rule, name, 0

    def worst(self, request: Request) -> Spent:
        return Spent(1)

    def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
        for request in asked:
            self.asked += 1
            text = request.chat[-1]["content"]
            sides = [text.split(f"{side}'s answer begins|>\n")[1].split("\n<|Assistant")[0] for side in "AB"]
            usage = Usage(prompt_tokens=1, completion_tokens=1)
            keep(request, Reply(text=self.rule(*sides), finish="stop", usage=usage, model=self.name, seconds=0.0))


def longer(a: str, b: str) -> str:
    gap = len(a) - len(b)
    return (
        "[[A=B]]"
        if gap == 0
        else f"I think [[{'A' if gap > 0 else 'B'}>{'>' * (abs(gap) > 40)}{'B' if gap > 0 else 'A'}]]"
    )


def dump(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A folder with questions of two categories and the answers of four models."""
    rng = np.random.default_rng(0)
    questions = [
        {"uid": f"q{n:02d}", "category": ("hard_prompt", "creative_writing")[n % 2], "prompt": f"Do {n} {{a}}."}
        for n in range(24)
    ]
    dump(tmp_path / "question.jsonl", questions)
    for model, mean in (("base", 60), ("weak", 40), ("strong", 70), ("windy", 120)):
        rows = []
        for question in questions:
            text = "w " * int(rng.integers(mean - 30, mean + 30)) + "**b** " * int(rng.integers(0, 5))
            rows.append(
                {
                    "uid": question["uid"],
                    "model": model,
                    "messages": [{"role": "assistant", "content": {"answer": text}}],
                }
            )
        dump(tmp_path / "answers" / f"{model}.jsonl", rows)
    return tmp_path


def pairs(games: list[Game]) -> list[tuple[Game, Game]]:
    return list(zip(games[::2], games[1::2], strict=True))


def play(bench: Path, judge: Any, run: Run | None = None, **settings: Any) -> Any:
    return ArenaJudge(baseline="base", **settings)(bench / "answers", bench / "question.jsonl", judge, run)


# -- judge -----------------------------------------------------------------------------------------------------------


def test_each_prompt_is_played_twice_with_the_sides_swapped(bench: Path, tmp_path: Path) -> None:
    with Run(tmp_path / "run") as run:
        scores = play(bench, Ruled(longer), run)
    assert len(scores) == 24 * 2 * 3
    games = read_judgments(tmp_path / "run")
    assert [game.row() for game in games] == sorted(scores.rows(), key=lambda row: row["model"])
    by = {(g.model, g.uid, g.number): g for g in games}
    texts = {
        m: [json.loads(line) for line in (bench / "answers" / f"{m}.jsonl").read_text().splitlines()]
        for m in ("base", *MODELS)
    }
    for model in MODELS:
        for own, base in zip(texts[model], texts["base"], strict=True):
            gap = len(own["messages"][0]["content"]["answer"]) - len(base["messages"][0]["content"]["answer"])
            first, second = by[model, own["uid"], 0], by[model, own["uid"], 1]
            assert first.score == second.score == (0.5 if gap == 0 else float(gap > 0))
            assert first.strong == second.strong == (abs(gap) > 40)
    # Two categories, two sets of instructions: only the hard ones ask for an answer of the judge's own.
    assert len({game.prompt for game in games}) == 2


def test_a_judge_without_verdict_is_counted_and_never_a_zero(bench: Path, tmp_path: Path) -> None:
    with Run(tmp_path / "run") as run:
        scores = play(bench, Ruled(lambda a, b: longer(a, b) if len(a) % 9 else "Both are fine."), run)
    missing = scores.notes["without_verdict"]
    assert 0 < missing == sum(row["score"] is None for row in scores.rows()) == run.metrics["without_verdict"]
    table = ArenaScore(draws=100)(tmp_path / "run")
    assert table.notes["without_verdict"] == missing
    # A game alone would carry the judge's liking for a side: its swap does not count either.
    alone = sum(a.verdict is None or b.verdict is None for a, b in pairs(read_judgments(tmp_path / "run")))
    assert table.notes["not_counted"] == 2 * alone == sum(row["missing"] for row in table.rows()) > missing


def test_a_stopped_run_asks_only_for_the_rest(bench: Path, tmp_path: Path) -> None:
    class Stopping(Ruled):
        def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
            super().answer(asked[:7], keep, run)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "run") as run:
        play(bench, Stopping(longer), run)
    judge = Ruled(longer)
    with Run(tmp_path / "run") as run:
        resumed = play(bench, judge, run)
    assert judge.asked == 24 * 2 * 3 - 7
    with Run(tmp_path / "whole") as run:
        whole = play(bench, Ruled(longer), run)
    assert resumed.rows() == whole.rows()
    first, second = ((tmp_path / name / "artifact" / "ruled" / "weak.jsonl").read_bytes() for name in ("run", "whole"))
    assert first == second


def test_a_recording_gives_the_same_judgments(bench: Path, tmp_path: Path) -> None:
    with Run(tmp_path / "run") as run:
        scores = play(bench, Ruled(longer), run, prompts=6)
    record(tmp_path / "run", tmp_path / "calls.jsonl")
    with Run(tmp_path / "again") as run:
        assert play(bench, Replay(tmp_path / "calls.jsonl"), run, prompts=6).rows() == scores.rows()
    names = [tmp_path / name / "artifact" / "ruled" / "windy.jsonl" for name in ("run", "again")]
    assert names[0].read_bytes() == names[1].read_bytes()


def test_costs_are_known_before_the_first_call(bench: Path, tmp_path: Path) -> None:
    method = ArenaJudge(baseline="base", max_tokens=100, prompt_price=2, completion_price=8, speed=50)
    sources = {"answers": str(bench / "answers"), "questions": str(bench / "question.jsonl"), "judge": "http://x/v1#y"}
    costs = method.estimate(sources)
    assert costs["calls"] == 144
    assert costs["judgment_tokens_at_most"] == 14_400
    assert costs["minutes_at_most"] == 4.8
    assert costs["dollars_at_most"] == round((2 * costs["prompt_tokens_about"] + 8 * 14_400) / 1e6, 2)

    class Refusing(Ruled):
        def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
            raise RuntimeError

    with pytest.raises(RuntimeError), Run(tmp_path / "run") as run:
        method(bench / "answers", bench / "question.jsonl", Refusing(longer), run)
    assert run.events("estimate")[0]["calls"] == 144


def test_instructions_of_a_file_replace_ours_and_are_told_apart(bench: Path, tmp_path: Path) -> None:
    (tmp_path / "judge.txt").write_text("Say which.")
    with Run(tmp_path / "run") as run:
        play(bench, Ruled(longer), run, instructions=str(tmp_path / "judge.txt"), models=("weak",))
    assert {len({g.prompt for g in read_judgments(tmp_path / "run")})} == {1}
    chat = json.loads((tmp_path / "run" / "llm.jsonl").read_text().splitlines()[0])["value"]["chat"]
    assert chat[0] == {"role": "system", "content": "Say which."}
    with Run(tmp_path / "other") as run:
        play(bench, Ruled(longer), run, models=("strong",))
    both = tmp_path / "both"
    for name in ("run", "other"):
        for file in (tmp_path / name / "artifact" / "ruled").iterdir():
            dump(both / file.name, [json.loads(line) for line in file.read_text().splitlines()])
    with pytest.raises(BadInput, match="2 sets of judging instructions"):
        ArenaScore()(both)


def test_what_cannot_be_judged_is_refused(bench: Path) -> None:
    answers, questions, judge = bench / "answers", bench / "question.jsonl", Ruled(longer)
    with pytest.raises(UnknownName, match=r"gemini-2\.0-flash-001"):
        ArenaJudge()(answers, questions, judge)
    with pytest.raises(UnknownName, match="no model with answers called 'wea'"):
        play(bench, judge, models=("wea",))
    with pytest.raises(BadInput, match="named twice"):
        play(bench, judge, models=("weak", "weak"))
    with pytest.raises(BadInput, match="24 questions, and 30"):
        play(bench, judge, prompts=30)
    with pytest.raises(BadInput, match="cannot be read"):
        play(bench, judge, instructions="absent.txt")
    dump(answers / "few.jsonl", [{"uid": "q00", "model": "few", "messages": [{"content": "x"}]}])
    with pytest.raises(BadInput, match="few: 23 of 24"):
        play(bench, judge)
    dump(questions, [{"uid": "q00", "category": "new", "prompt": "?"}])
    with pytest.raises(BadInput, match="no baseline is known for the category 'new'"):
        ArenaJudge()(answers, questions, judge)
    assert judge.asked == 0


# -- score -----------------------------------------------------------------------------------------------------------


def games(seed: int = 0, prompts: int = 60, category: str = "c") -> list[dict[str, Any]]:
    """Judgments of three models, drawn at random."""
    rng = np.random.default_rng(seed)
    rows = []
    for model in MODELS:
        for uid in range(prompts):
            liking = rng.normal(MEAN[model], 1.2)
            scores = []
            for number in (0, 1):
                level = liking + rng.normal(0, 0.5)
                label = (
                    2 if abs(level) < 0.2 else (1 if level > 0 else 3) if abs(level) < 1 else (0 if level > 0 else 4)
                )
                scores.append(None if rng.random() < 0.05 else VERDICTS[label if number == 1 else 4 - label])
            rows.append(
                {"uid": f"q{uid:03d}", "category": category, "judge": "j", "model": model, "baseline": "base",
                 "games": [{"score": score, "judgment": {"answer": ""}} for score in scores]}
            )  # fmt: skip
    return rows


def answers_for(prompts: int = 60, seed: int = 1, tokens: bool = True) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    rows = []
    for model in ("base", *MODELS):
        for uid in range(prompts):
            size = int(rng.integers(20, 200) * (2 if model == "windy" else 1))
            text = (
                "word " * size
                + "\n# h" * int(rng.integers(0, 4))
                + "\n- i" * int(rng.integers(0, 9))
                + "\n**b**" * int(rng.integers(0, 6))
            )
            row = {"uid": f"q{uid:03d}", "model": model, "messages": [{"content": {"answer": text}}]}
            rows.append(row | ({"metadata": {"token_len": 2 * size + 40}} if tokens else {}))
    return rows


def scored(path: Path) -> list[Game]:
    return [game for pair in pairs(read_judgments(path)) if None not in [one.score for one in pair] for game in pair]


def test_without_style_control_the_win_rate_is_the_weighted_mean(tmp_path: Path) -> None:
    path = dump(tmp_path / "j.jsonl", games())
    table = ArenaScore(draws=100)(path)
    rates = {row["model"]: row["estimate"] for row in table.rows()}
    for model in MODELS:
        own = [game for game in scored(path) if game.model == model]
        # As the released code has it: a clear verdict is three rows.
        copies = [game.score for game in own for _ in range(3 if game.strong else 1)]
        assert rates[model] == pytest.approx(np.mean(copies), abs=1e-5)
    assert [row["model"] for row in table.rows()] == sorted(rates, key=lambda model: -rates[model])
    assert rates["base"] == 0.5
    row = table.rows()[0]
    assert row["low"] < row["estimate"] < row["high"]
    assert row["n"] + row["missing"] == 120


CHOICES = [("length",), ("markdown",), ("length", "markdown")]


@pytest.mark.parametrize("tokens", [True, False])
def test_each_choice_of_style_is_the_fit_that_it_says(tmp_path: Path, tokens: bool) -> None:
    path = dump(tmp_path / "j.jsonl", games())
    texts = dump(tmp_path / "a.jsonl", answers_for(tokens=tokens))
    answer = {(row["model"], row["uid"]): row for row in map(json.loads, texts.read_text().splitlines())}
    played = scored(path)

    def measure(model: str, uid: str) -> np.ndarray:
        row = answer[model, uid]
        text = row["messages"][0]["content"]["answer"]
        size = (
            row["metadata"]["token_len"]
            if tokens
            else text.count("word") + 2 * text.count("\n- ") + 2 * text.count("# h") + 5 * text.count("**b**")
        )
        return np.array([size, text.count("# h"), text.count("\n- i"), text.count("**b**")], dtype=float)

    ours = np.array([measure(game.model, game.uid) for game in played])
    base = np.array([measure(game.baseline, game.uid) for game in played])
    length = (ours[:, :1] - base[:, :1]) / (ours[:, :1] + base[:, :1])
    m, b = ours[:, 1:] / (ours[:, :1] + 1), base[:, 1:] / (base[:, :1] + 1)
    markdown = (m - b) / (m + b + 1)
    weight = np.array([3.0 if game.strong else 1.0 for game in played])
    won = np.array([game.score for game in played], dtype=float)
    dummies = np.array([[game.model == model for model in MODELS] for game in played], dtype=float)
    found = {}
    for chosen in CHOICES:
        style = np.hstack([part for name, part in (("length", length), ("markdown", markdown)) if name in chosen])
        style = style / np.repeat(style, weight.astype(int), axis=0).std(0, ddof=1)
        x = np.hstack([dummies, style])
        theta = scipy.optimize.minimize(
            lambda t, x=x: (weight @ (np.logaddexp(0, x @ t) - won * (x @ t)), x.T @ (weight * (expit(x @ t) - won))),
            np.zeros(x.shape[1]), jac=True,
        ).x  # fmt: skip
        table = ArenaScore(control=chosen, draws=100)(path, texts)
        rates = {row["model"]: row["estimate"] for row in table.rows()}
        assert [rates[model] for model in MODELS] == pytest.approx(expit(theta[:3]).tolist(), abs=1e-3)
        names = [n for n in ("length", "header", "list", "bold") if n in table.notes]
        assert [table.notes[name]["estimate"] for name in names] == pytest.approx(theta[3:].tolist(), abs=1e-3)
        at_mean = ArenaScore(control=chosen, draws=100, at="mean")(path, texts)
        # The released code centres the features: its strengths are these.
        shift = np.average(style, axis=0, weights=weight) @ theta[3:]
        moved = {row["model"]: row["estimate"] for row in at_mean.rows()}
        assert [moved[m] for m in MODELS] == pytest.approx(expit(theta[:3] + shift).tolist(), abs=1e-3)
        assert moved["base"] == 0.5
        found[chosen] = tuple(rates[model] for model in MODELS)
    assert len({tuple(np.round(rates, 4)) for rates in found.values()}) == 3


def test_prompts_are_resampled_and_not_games(tmp_path: Path) -> None:
    rows = games(prompts=150)
    for row in rows:
        row["games"] = [
            {"score": "A>>B" if int(row["uid"][1:]) % 2 else "B>>A"},
            {"score": "B>>A" if int(row["uid"][1:]) % 2 else "A>>B"},
        ]
    table = ArenaScore(draws=400)(dump(tmp_path / "j.jsonl", rows))
    row = next(row for row in table.rows() if row["model"] == "weak")
    # 150 coins of 0 or 1, not 900: the standard error is 1 / (2 sqrt(150)).
    assert (row["high"] - row["low"]) / (2 * 1.96) == pytest.approx(0.5 / 150**0.5, rel=0.15)
    assert row["consistent"] == 1
    assert row["level"] == 0.95


def test_the_level_is_what_is_printed(tmp_path: Path) -> None:
    path = dump(tmp_path / "j.jsonl", games())
    wide, narrow = (ArenaScore(level=level, draws=400)(path).rows()[0] for level in (0.95, 0.9))
    assert wide["high"] - wide["low"] > narrow["high"] - narrow["low"]
    assert (wide["level"], narrow["level"]) == (0.95, 0.9)
    with Run(tmp_path / "run") as run:
        ArenaScore(draws=400)(path, run=run)
    draws = read_table(tmp_path / "run" / "draws.parquet").table.to_pandas()
    own = draws[draws["model"] == wide["model"]]["win_rate"]
    # A little beyond the plain percentiles, by what 60 prompts fall short of many.
    assert 0.01 < np.mean(own < wide["low"]) <= 0.025
    assert 0.01 < np.mean(own > wide["high"]) <= 0.025


def test_each_category_has_its_own_fit_and_its_own_baseline(tmp_path: Path) -> None:
    other = [row | {"baseline": "another", "uid": "x" + row["uid"]} for row in games(7, category="d")]
    first, second = dump(tmp_path / "c.jsonl", games()), dump(tmp_path / "d.jsonl", other)
    both = dump(tmp_path / "both.jsonl", [*games(), *other])
    table = ArenaScore(draws=100)(both)
    for name, path in (("c", first), ("d", second)):
        alone = ArenaScore(draws=100)(path).rows()
        within = [row for row in table.rows() if row["category"] == name]
        assert within == [row | {"label": f"{row['model']}, {name}"} for row in alone]
    assert {row["category"] for row in ArenaScore(category=("d",), draws=100)(both).rows()} == {"d"}
    with pytest.raises(UnknownName, match="category"):
        ArenaScore(category=("e",))(both)


def test_verdicts_that_cannot_be_compared_are_not_mixed(tmp_path: Path) -> None:
    rows = games()
    rows[0] |= {"judge": "another", "baseline": "strong"}
    with pytest.raises(BadInput, match=r"2 judges: another, j\n.*2 baselines: base, strong"):
        ArenaScore()(dump(tmp_path / "j.jsonl", rows))


def test_a_judge_that_only_likes_a_side_makes_no_difference_by_what_it_leaves_out(tmp_path: Path) -> None:
    rows = games(prompts=40)
    for n, row in enumerate(rows):  # always the first; half of the games in which the model is second are unread
        row["games"] = [{"score": None if n % 2 else "A>B"}, {"score": "A>B"}]
    table = ArenaScore(draws=100)(dump(tmp_path / "j.jsonl", rows))
    assert [row["estimate"] for row in table.rows()] == pytest.approx([0.5] * 4)
    assert all(row["missing"] == 40 for row in table.rows() if row["model"] != "base")


def test_a_panel_counts_all_its_judges_alike(tmp_path: Path) -> None:
    second = [row | {"judge": "k"} for row in games(3)]
    path = dump(tmp_path / "j.jsonl", [*games(), *second])
    with pytest.raises(BadInput, match=r"2 judges: j, k\n.*--panel"):
        ArenaScore()(path)
    with Run(tmp_path / "run") as run:
        table = ArenaScore(panel=True, draws=200)(path, run=run)
    rates = {row["model"]: row for row in table.rows()}
    for model in MODELS:
        copies = [game.score for game in scored(path) if game.model == model for _ in range(3 if game.strong else 1)]
        assert rates[model]["estimate"] == pytest.approx(np.mean(copies), abs=1e-5)
        assert rates[model]["n_clusters"] <= 60
    assert table.notes["judge"] == "j, k"
    assert len({row["item_id"] + row["model"] for row in read_table(tmp_path / "run" / "items.parquet").rows()}) == 720
    with pytest.raises(BadInput, match="c: k did not judge 1 answers"):
        ArenaScore(panel=True)(dump(tmp_path / "few.jsonl", [*games(), *second[1:]]))


def test_a_panel_of_one_opinion_is_no_surer_than_one_judge(tmp_path: Path) -> None:
    again = [row | {"judge": "k"} for row in games()]
    one, both = dump(tmp_path / "one.jsonl", games()), dump(tmp_path / "both.jsonl", [*games(), *again])
    assert [(row["model"], row["low"], row["high"]) for row in ArenaScore(panel=True)(both).rows()] == [
        (row["model"], pytest.approx(row["low"], abs=1e-4), pytest.approx(row["high"], abs=1e-4))
        for row in ArenaScore()(one).rows()
    ]


@pytest.mark.parametrize("name", ["weak", "weak@0123456789ab", "http://127.0.0.1:8000/v1#weak"])
def test_a_judges_own_answers_are_left_out(tmp_path: Path, name: str) -> None:
    rows = [row | {"judge": name} for row in games()]
    table = ArenaScore(draws=100)(dump(tmp_path / "j.jsonl", rows))
    assert {row["model"] for row in table.rows()} == {"base", "strong", "windy"}
    assert "left out, the judge's own answers: weak" in table.notes["warnings"]
    with pytest.raises(BadInput, match="weak judged nothing but its own answers"):
        ArenaScore()(dump(tmp_path / "k.jsonl", [row for row in rows if row["model"] == "weak"]))


def test_recorded_markdown_is_used_where_all_answers_have_it(tmp_path: Path) -> None:
    path = dump(tmp_path / "j.jsonl", games())
    rows = answers_for()
    for n, row in enumerate(rows):
        text = row["messages"][0]["content"]["answer"]
        row["metadata"] |= {
            "header_count": {"h1": n % 3, "h2": 1},
            "list_count": {"ordered": 0, "unordered": text.count("- i")},
            "bold_count": {"**": text.count("**b**"), "__": 0},
        }
    found = {}
    for name, used in (("all", rows), ("one lacks", [rows[0] | {"metadata": {"token_len": 9}}, *rows[1:]])):
        texts = dump(tmp_path / f"{name}.jsonl", used)
        found[name] = ArenaScore(control=("length", "markdown"), draws=100)(path, texts).notes
    assert found["all"]["style"].endswith("tokens as recorded, Markdown as recorded")
    assert found["one lacks"]["style"].endswith("tokens as recorded")
    assert found["all"]["header"]["estimate"] != pytest.approx(found["one lacks"]["header"]["estimate"], abs=1e-3)


def test_what_never_differs_is_named_and_left_out(tmp_path: Path) -> None:
    path = dump(tmp_path / "j.jsonl", games())
    plain = [row | {"messages": [{"content": "word " * (20 + n % 7)}]} for n, row in enumerate(answers_for())]
    for row in plain:
        row.pop("metadata")
    table = ArenaScore(control=("length", "markdown"), draws=100)(path, dump(tmp_path / "a.jsonl", plain))
    assert table.notes["never_differs"] == "header, list, bold"
    assert "length" in table.notes


def test_a_style_that_hardly_ever_differs_gets_no_interval(tmp_path: Path) -> None:
    path = dump(tmp_path / "j.jsonl", games())
    rows = answers_for()
    for n, row in enumerate(rows):
        text = "word " * (20 + 7 * n % 31) + ("\n# once" if n == 70 else "")
        row |= {"messages": [{"content": {"answer": text}}]}
        row.pop("metadata")
    texts = dump(tmp_path / "a.jsonl", rows)
    for at in ("equal", "mean"):
        table = ArenaScore(control=("length", "markdown"), draws=100, at=at)(path, texts)
        assert table.notes["never_differs"] == "list, bold"
        assert table.notes["differs_too_rarely"] == "header"
        assert {"estimate", "low", "high"} == set(table.notes["length"])
        assert all(0 < row["low"] <= row["estimate"] <= row["high"] < 1 for row in table.rows())


def test_style_control_needs_all_answers(tmp_path: Path) -> None:
    path = dump(tmp_path / "j.jsonl", games())
    with pytest.raises(BadInput, match="needs the answers"):
        ArenaScore(control=("length",))(path)
    few = dump(tmp_path / "a.jsonl", [row for row in answers_for() if row["model"] != "weak" and row["uid"] != "q000"])
    with pytest.raises(BadInput, match=r"base: 1 answers\n.*strong: 1 answers\n.*weak: 57 answers"):
        ArenaScore(control=("length",))(path, few)


def test_a_file_without_any_verdict_is_refused(tmp_path: Path) -> None:
    rows = [row | {"games": [{"score": None}, {"score": None}]} for row in games(prompts=3)]
    with pytest.raises(BadInput, match="no prompt of c has two verdicts"):
        ArenaScore()(dump(tmp_path / "j.jsonl", rows))
    some = games(prompts=30)
    for row in some:
        if row["model"] == "weak":
            row["games"] = [{"score": None}, None]
    with pytest.raises(BadInput, match="no prompt of weak has two verdicts"):
        ArenaScore(draws=100)(dump(tmp_path / "k.jsonl", some))


def test_twice_is_the_same_and_games_are_kept(tmp_path: Path) -> None:
    path, texts = dump(tmp_path / "j.jsonl", games()), dump(tmp_path / "a.jsonl", answers_for())
    found = []
    for name in ("one", "two"):
        with Run(tmp_path / name) as run:
            found.append(ArenaScore(control=("length",), draws=100)(path, texts, run))
    assert str(found[0].rows()) == str(found[1].rows())
    assert found[0].notes == found[1].notes
    items = read_table(tmp_path / "one" / "items.parquet")
    assert len(items) == 360
    assert set(items.column("weight")) == {1.0, 3.0}


# -- validity --------------------------------------------------------------------------------------------------------


@pytest.fixture
def published() -> Path:
    path = Path(os.environ.get("BURNISH_DATA", "")) / "arena_hard" / "arena_hard_leaderboard_20240731.csv"
    if "BURNISH_DATA" not in os.environ or not path.exists():
        pytest.skip("BURNISH_DATA holds no arena_hard")
    return path


def test_the_published_leaderboard(published: Path, tmp_path: Path) -> None:
    rows = published.read_text().splitlines()
    lowest = sorted(rows[1:], key=lambda row: float(row.split(",")[1]))[:20]
    (tmp_path / "low.csv").write_text("\n".join([rows[0], *lowest]))
    found = ArenaValidity()(tmp_path / "low.csv")
    assert sum(found.column("order")) == 138
    assert found.notes["separability"] == 138 / 190
    every = ArenaValidity()(published)
    assert (every.notes["models"], every.notes["pairs"]) == (60, 1770)
    assert every.notes["separability"] == pytest.approx(1598 / 1770)
    assert ArenaValidity(top=20)(published).notes["separability"] == 154 / 190
    itself = ArenaValidity()(published, published)
    assert itself.notes["agreement"] == itself.notes["separability"]
    assert itself.notes["agreement_of_separated"] == itself.notes["spearman"] == 1


def test_the_share_of_pairs_that_the_paper_says_are_separated(published: Path, tmp_path: Path) -> None:
    from burnish.claims.arena import PAPERS

    head, *rows = published.read_text().splitlines()
    own = [row for row in rows if row.split(",")[0] in PAPERS]
    (tmp_path / "paper.csv").write_text("\n".join([head, *own]))
    found = ArenaValidity()(tmp_path / "paper.csv")
    assert (found.notes["models"], found.notes["pairs"]) == (20, 190)
    assert round(100 * found.notes["separability"], 1) == 87.4


def board(path: Path, *rows: tuple[str, float, float, float]) -> Path:
    path.write_text("model,score,low,high\n" + "".join(f"{m},{s},{a},{b}\n" for m, s, a, b in rows))
    return path


def test_a_reference_agrees_or_not_pair_by_pair(tmp_path: Path) -> None:
    ours = board(tmp_path / "a.csv", ("x", 3, 2.9, 3.1), ("y", 2, 1.9, 2.1), ("z", 1, 0.9, 1.1), ("only here", 0, 0, 0))
    theirs = board(
        tmp_path / "b.csv", ("x", 3, 2.9, 3.1), ("z", 2, 1.9, 2.1), ("y", 1, 0.9, 2), ("only there", 0, 0, 0)
    )
    found = ArenaValidity()(ours, theirs)
    votes = {row["item_id"]: row["vote"] for row in found.rows()}
    assert votes == {"x / z": 1, "x / y": 1, "y / z": 0}
    assert found.notes["agreement"] == 2 / 3
    assert found.notes["left_out"] == ["only here", "only there"]
    assert found.notes["kendall"] == pytest.approx(1 / 3)
    # The benchmark is sure of y above z and the reference has it the other way round.
    assert found.notes["brier"] == pytest.approx(1 / 3, abs=1e-6)


def test_probabilities_come_from_resamples_where_there_are_any(tmp_path: Path) -> None:
    path = dump(tmp_path / "j.jsonl", games())
    with Run(tmp_path / "run") as run:
        table = ArenaScore(draws=200)(path, run=run)
        table.save(tmp_path / "run" / "table.parquet")
    found = ArenaValidity()(tmp_path / "run")
    assert found.notes["probabilities"] == "from resamples"
    draws = (
        read_table(tmp_path / "run" / "draws.parquet")
        .table.to_pandas()
        .pivot(index="draw", columns="model", values="win_rate")
    )
    for row in found.rows():
        a, b = draws[row["model"]], draws[row["other"]]
        assert row["above"] == pytest.approx(np.mean(a > b) + np.mean(a == b) / 2)
        assert row["gap"] >= 0


def test_the_level_is_that_of_the_leaderboard_where_it_says_so(tmp_path: Path) -> None:
    path = dump(tmp_path / "j.jsonl", games())
    for name, level in (("ninety", 0.9), ("usual", 0.95)):
        with Run(tmp_path / name) as run:
            ArenaScore(draws=200, level=level)(path, run=run).save(tmp_path / name / "table.parquet")
    assert ArenaValidity()(tmp_path / "ninety").notes["level"] == 0.9
    with pytest.raises(BadInput, match=r"intervals are at 0\.9, and the reference's at 0\.95"):
        ArenaValidity()(tmp_path / "ninety", tmp_path / "usual")
    own = board(tmp_path / "a.csv", *((m, n, n - 0.1, n + 0.1) for n, m in enumerate((*MODELS, "base"))))
    assert ArenaValidity(level=0.9)(tmp_path / "ninety", own).notes["level"] == 0.9


def test_leaderboards_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    one = board(tmp_path / "a.csv", ("x", 3, 2, 4), ("y", 2, 1, 3))
    with pytest.raises(BadInput, match="0 models are in both"):
        ArenaValidity()(one, board(tmp_path / "b.csv", ("p", 3, 2, 4), ("q", 2, 1, 3)))
    with pytest.raises(BadInput, match="2 models to compare, and 3"):
        ArenaValidity(top=3)(one)
    rows = "".join(f"{c},{m},1,0,2\n" for c in "cd" for m in "xy")
    (tmp_path / "c.csv").write_text("category,model,score,low,high\n" + rows)
    with pytest.raises(BadInput, match="holds 2 categories"):
        ArenaValidity()(tmp_path / "c.csv")
    assert ArenaValidity(category="d")(tmp_path / "c.csv").notes["pairs"] == 1
    with pytest.raises(UnknownName, match="category"):
        ArenaValidity(category="e")(tmp_path / "c.csv")
