"""The command line and the workflow, with a made-up method that needs no torch."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from burnish import catalogue, workflow
from burnish.cli import fields, look, main, threads
from burnish.core.errors import BadInput, MissingExtra, Unsupported
from burnish.core.recipe import Recipe
from burnish.core.run import Run
from burnish.core.shapes import Analysis, Compressor
from burnish.data.scores import Scores

CALLS: list[str] = []
"""What the made-up methods did, in order."""


class Count(Analysis):
    """Count the words of a file.

    A second paragraph with [markup].
    """

    bits: Literal[2, 3] = 3
    """Bits."""
    least: int = Field(default=1, ge=0)
    """Letters that a word must have."""
    sym: bool = False
    """A switch."""
    rate: float | None = None
    """May be none."""
    sites: tuple[Literal["q", "k"], ...] = ()
    """Several."""
    crash: Literal["", "bug", "user", "stop"] = ""
    """How it ends."""

    def __call__(self, file: Path, other: Path | None = None, run: Run | None = None) -> Scores:
        """Count."""
        CALLS.append(f"count {file.name}")
        if self.crash == "bug":
            raise ZeroDivisionError("the [bug]")
        if self.crash == "user":
            raise BadInput("the file is [odd]", "mend it")
        if self.crash == "stop":
            raise KeyboardInterrupt
        words = [word for word in file.read_text().split() if len(word) >= self.least]
        assert run is not None
        run.metric(words=len(words))
        rows = [{"item_id": str(n), "model": "", "letters": len(word)} for n, word in enumerate(words)]
        return Scores.of(rows, mean=sum(map(len, words)) / len(words), said="[a note]")


class Longest(Analysis):
    """Find the longest word."""

    ask: int = 1
    """Times."""

    def __call__(self, scores: Scores, run: Run | None = None) -> Scores:
        """Find it."""
        CALLS.append("longest")
        if self.ask > 5:
            raise KeyboardInterrupt
        assert run is not None
        run.metric(letters=max(row["letters"] for row in scores.rows()), words=1)
        return scores


class Halve(Compressor):
    """Halve a text, which stands for a model."""

    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(self, model: Model, run: Run | None = None) -> Model:  # noqa: F821
        """Halve it."""
        CALLS.append("halve")
        return model[: len(model) // 2]

    def estimate(self, goods: dict[str, str]) -> dict[str, Any]:
        """What it costs."""
        return {"minutes": 2, "reads": goods["model"]}


@pytest.fixture(autouse=True)
def methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three made-up methods, in a catalogue of their own, with light goods and a light report; an empty folder."""
    CALLS.clear()
    module = types.ModuleType("burnish.evaluate.made_up", "Made up.\n\n## How it works\n\nIt counts.")
    for cls in (Count, Longest, Halve):
        setattr(module, cls.__name__, cls)
        monkeypatch.setattr(cls, "__module__", module.__name__)
        monkeypatch.setitem(catalogue.METHODS, cls.__name__.lower(), f"{module.__name__}:{cls.__name__}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    light = types.ModuleType("light_parts")
    vars(light).update(
        read=lambda source, **options: Path(source).read_text(), write=_write, check=_check, export=_export
    )
    vars(light).update(render=_render)
    monkeypatch.setitem(sys.modules, light.__name__, light)
    monkeypatch.setitem(
        catalogue.GOODS, "Model", catalogue.GoodKind("light_parts:read", "light_parts:write", "artifact")
    )
    stand_ins = {
        "burnish.report:render": "light_parts:render",
        "burnish.models:check_export": "light_parts:check",
        "burnish.models:export": "light_parts:export",
    }
    real = catalogue.reference
    monkeypatch.setattr(catalogue, "reference", lambda target: real(stand_ins.get(target, target)))
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("one three seventeen")


def _write(text: str, path: Path) -> None:
    if "unsaveable" in text:
        raise Unsupported("this text", "it says so")
    path.write_text(text)


def _check(method: Any, format: str) -> None:
    if format == "gptq":
        raise Unsupported("gptq", "this is no model")


def _export(text: str, path: Path, format: str) -> None:
    path.write_text(f"{format}: {text}")


def _render(folders: list[Path], out: Path) -> Path:
    out.write_text("<html>")
    return out


@pytest.fixture
def burnish(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line in this process: exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main.run(words)
        return code, *capsys.readouterr()

    return call


Burnish = Callable[..., tuple[int, str, str]]

# -- a method's command -----------------------------------------------------------------------------------------


def test_a_run_says_where_it_is_and_leaves_everything_there(burnish: Burnish) -> None:
    code, out, err = burnish("evaluate", "count", "t.txt", "--least", "4")
    assert code == 0, err
    assert "run folder: runs/count-t.txt" in err
    assert "words" in out
    folder = Path("runs/count-t.txt")
    state = json.loads((folder / "run.json").read_text())
    assert state["status"] == "done"
    assert state["metrics"] == {"words": 2, "mean": 7.0}
    request = state["request"]
    assert request["use"] == "count"
    assert request["goods"] == {"file": "t.txt"}
    assert request["settings"]["least"] == 4
    assert {path.name for path in folder.iterdir()} >= {"items.parquet", "report.html", "request.toml"}


def test_a_finished_run_is_shown_and_not_done_again(burnish: Burnish) -> None:
    burnish("evaluate", "count", "t.txt")
    code, out, _ = burnish("evaluate", "count", "t.txt")
    assert code == 0
    assert "finished before" in out
    assert CALLS == ["count t.txt"]


def test_another_request_in_the_same_folder_is_refused(burnish: Burnish) -> None:
    burnish("evaluate", "count", "t.txt", "--out", "r")
    code, _, err = burnish("evaluate", "count", "t.txt", "--out", "r", "--seed", "1")
    assert code == 2
    assert "seed: 0 there, 1 now" in err


def test_all_faults_of_a_command_are_said_at_once(burnish: Burnish) -> None:
    words = "--bist 3 --bits 5 --foo=1 --least -1 t.txt u.txt --sites q,x --seed x --threads 0 --device tpu --other no"
    code, out, err = burnish("evaluate", "count", *words.split())
    assert code == 2
    assert out == ""
    for line in (
        "`burnish evaluate count` has 10 faults",
        "--bist: there is no such flag; did you mean --bits?",
        "--foo: there is no such flag\n",
        "'u.txt': there is no place for this argument",
        "--bits: should be 2 or 3 (you gave '5')",
        "--least: should be greater than or equal to 0 (you gave '-1')",
        "--sites.1: should be 'q' or 'k' (you gave 'x')",
        "--seed: should be a valid integer",
        "--threads: should be greater than or equal to 1",
        "--device: should be 'auto', 'cpu', 'cuda' or 'mps' (you gave 'tpu')",
        "other: there is nothing at no",
        "fix: `burnish evaluate count --help` lists what it takes",
    ):
        assert line in err, line
    assert not Path("runs").exists()


def test_a_missing_good_is_said_with_what_it_is(burnish: Burnish) -> None:
    code, _, err = burnish("evaluate", "count", "--bits", "9")
    assert code == 2
    assert "FILE: is missing; it is a Path: a file or a folder" in err
    assert "--bits" in err


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("--bits 2", {"bits": 2}),
        ("--bits=2 --least=07", {"bits": 2, "least": 7}),
        ("--sym", {"sym": True}),
        ("--no-sym", {"sym": False}),
        ("--rate 1e-3", {"rate": 0.001}),
        ("--rate none", {"rate": None}),
        ("--sites q --sites k", {"sites": ("q", "k")}),
        ("--sites q,k", {"sites": ("q", "k")}),
    ],
)
def test_flags_become_settings(
    words: str, settings: dict[str, Any], burnish: Burnish, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(workflow, "plan_method", lambda use, method, *rest, **more: seen.append(method) or _plan())
    code, _, err = burnish("evaluate", "count", "t.txt", "--dry-run", *words.split())
    assert code == 0, err
    assert seen == [Count(**settings)]


def _plan() -> workflow.Plan:
    return workflow.Plan(Path("r"), 0)


def test_a_dry_run_shows_settings_and_estimates_and_does_nothing(burnish: Burnish) -> None:
    code, out, _ = burnish("evaluate", "halve", "t.txt", "--dry-run")
    assert code == 0
    assert "runs/halve-t.txt" in out
    assert ["minutes", "2"] in [line.split() for line in out.splitlines()]
    assert CALLS == []
    assert not Path("runs").exists()


def test_the_form_of_a_saved_model_can_be_asked_for_and_changed_later(burnish: Burnish) -> None:
    saved = Path("r/artifact")
    code, _, err = burnish("evaluate", "halve", "t.txt", "--out", "r")
    assert code == 0, err
    assert saved.read_text() == "one three"
    assert burnish("evaluate", "halve", "t.txt", "--out", "r", "--format", "gguf")[0] == 0
    assert saved.read_text() == "gguf: one three"
    assert "finished before" in burnish("evaluate", "halve", "t.txt", "--out", "r", "--format", "gguf")[1]
    assert CALLS == ["halve", "halve"]


def test_a_form_that_cannot_hold_the_model_is_refused_before_any_work(burnish: Burnish) -> None:
    code, _, err = burnish("evaluate", "halve", "t.txt", "--format", "gptq")
    assert code == 2
    assert "gptq is not supported" in err
    assert CALLS == []
    assert burnish("evaluate", "count", "t.txt", "--format", "hf")[0] == 2


def test_help_lists_goods_settings_and_options(burnish: Burnish) -> None:
    code, out, _ = burnish("evaluate", "count", "--help")
    assert code == 0
    for text in (
        "Usage: burnish evaluate count FILE",
        "--bits 2|3",
        "--no-sym",
        "--dry-run",
        "[markup]",
        "[default: 3]",
    ):
        assert text in out, text
    assert "--format" not in out


def test_a_method_whose_setting_has_the_name_of_an_option_is_refused(
    burnish: Burnish, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clash(Analysis):
        seed: int = 0
        """Taken."""

        def __call__(self, file: Path, run: Run | None = None) -> None:
            """Nothing."""

    monkeypatch.setattr(sys.modules["burnish.evaluate.made_up"], "Count", Clash)
    code, _, err = burnish("evaluate", "count", "t.txt")
    assert code == 2
    assert "taken: seed" in err


# -- how commands end -------------------------------------------------------------------------------------------


def test_a_users_mistake_ends_with_2_and_no_traceback(burnish: Burnish) -> None:
    code, _, err = burnish("evaluate", "count", "t.txt", "--crash", "user")
    assert code == 2
    assert "error: the file is [odd]\nfix: mend it\n" in err
    assert "Traceback" not in err
    assert json.loads(Path("runs/count-t.txt/run.json").read_text())["status"] == "failed"


def test_a_bug_ends_with_1_and_keeps_its_traceback(burnish: Burnish) -> None:
    code, _, err = burnish("evaluate", "count", "t.txt", "--crash", "bug")
    assert code == 1
    assert "ZeroDivisionError: the [bug]" in err
    assert "this is a bug in burnish" in err


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(burnish: Burnish) -> None:
    code, _, err = burnish("evaluate", "count", "t.txt", "--crash", "stop")
    assert code == 130
    assert "stopped; the same command goes on where it stopped" in err
    assert json.loads(Path("runs/count-t.txt/run.json").read_text())["status"] == "stopped"


def test_a_missing_extra_ends_with_3_and_the_pip_line(burnish: Burnish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.EXTRAS, "chem", ("no_such_chemistry",))
    monkeypatch.setattr(Count, "needs", ("chem",))
    code, _, err = burnish("evaluate", "count", "t.txt")
    assert code == 3
    assert 'pip install "burnish[chem]"' in err
    assert not Path("runs").exists()


def test_a_folder_that_cannot_be_written_is_the_users_matter(burnish: Burnish) -> None:
    code, _, err = burnish("evaluate", "count", "t.txt", "--out", "t.txt/r")
    assert code == 2
    assert "t.txt/r: Not a directory" in err


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("compres", ["no command called 'compres'", "did you mean compress?"]),
        ("evaluate cuont", ["no method of `burnish evaluate` called 'cuont'", "did you mean count"]),
        ("show cuont", ["no method called 'cuont'", "did you mean count"]),
        ("claim bao", ["no claim called 'bao'", "did you mean boa?"]),
        ("run nothing", ["no recipe called 'nothing'"]),
        ("run nothing.toml", ["no recipe file nothing.toml"]),
        ("show", ["NAME requires an argument", "`burnish show --help`"]),
        ("list --jsno --bogus", ["--jsno: there is no such flag; did you mean --json?", "--bogus: there is no such"]),
        ("train x", ["`burnish train` is not supported", "no methods for it yet"]),
        ("serve m", ["`burnish serve` is not supported"]),
        ("server m --port 1", ["`burnish server` is not supported", "serving methods"]),
        ("report", ["needs at least one run folder"]),
        ("report t.txt nowhere", ["t.txt: holds no run", "nowhere: holds no run"]),
        ("runs nowhere", ["there is no folder nowhere"]),
        ("generate m --prompt x --with specache", ["`--with` is not supported"]),
        ("claim boa --threads 0", ["--threads"]),
        ("new compress rtn", ["there is a method of that name already"]),
        ("new compress Bad_", ["small letters and digits"]),
        ("new cook x", ["no verb called 'cook'"]),
    ],
)
def test_wrong_commands_end_with_2_and_say_what_to_do(words: str, texts: list[str], burnish: Burnish) -> None:
    code, _, err = burnish(*words.split())
    assert code == 2
    assert err.startswith("error: ")
    for text in texts:
        assert text in err, text


# -- looking ----------------------------------------------------------------------------------------------------


def test_list_as_a_table_and_as_json(burnish: Burnish) -> None:
    code, out, _ = burnish("list")
    assert code == 0
    assert "boa" in out
    rows = json.loads(burnish("list", "--json")[1])
    assert {"name", "verb", "kind", "status", "summary", "fault", "package"} <= rows[0].keys()
    assert [row["name"] for row in rows][: len(catalogue.METHODS)] == list(catalogue.METHODS)


def test_show_gives_settings_goods_and_documentation(burnish: Burnish) -> None:
    code, out, _ = burnish("show", "count")
    assert code == 0
    for text in (
        "Letters that a word must have.",
        "at least 0",
        "2|3",
        "file (Path), other (Path, optional)",
        "It counts.",
    ):
        assert text in out, text
    facts = json.loads(burnish("show", "count", "--json")[1])
    assert facts["gives"] == "Scores"
    assert facts["goods"][1] == {"good": "other", "kind": "Path", "required": False}
    assert facts["schema"]["properties"]["least"]["minimum"] == 0


def test_runs_can_be_asked_in_sql(burnish: Burnish) -> None:
    assert burnish("runs")[1] == "no run in runs\n"
    burnish("evaluate", "count", "t.txt", "--out", "runs/a")
    burnish("evaluate", "count", "t.txt", "--out", "runs/deep/b", "--least", "9")
    burnish("evaluate", "count", "t.txt", "--out", "runs/c", "--crash", "user")
    Path("runs/torn").mkdir()
    Path("runs/torn/run.json").write_text("{")
    code, out, err = burnish("runs")
    assert code == 0
    assert "runs/torn/run.json is damaged" in err
    assert [line.split()[:2] for line in out.splitlines()[2:]] == [
        ["runs/a", "done"],
        ["runs/c", "failed"],
        ["runs/deep/b", "done"],
    ]

    def asked(where: str) -> list[str]:
        return [row["folder"] for row in json.loads(burnish("runs", "--where", where, "--json")[1])]

    assert asked("metrics.words < 2 and use = 'count'") == ["runs/deep/b"]
    assert asked("status = 'failed'") == ["runs/c"]
    assert asked("minutes > 1e9") == []


@pytest.mark.parametrize("where", ["nonsense >", "colour = 1", "folder in (select 1 from read_text('t.txt'))"])
def test_a_condition_that_is_wrong_or_reads_files_is_refused(where: str, burnish: Burnish) -> None:
    burnish("evaluate", "count", "t.txt")
    code, out, err = burnish("runs", "--where", where)
    assert code == 2
    assert out == ""
    assert "the columns are folder (VARCHAR)" in err


def test_env_names_the_extras(burnish: Burnish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.cli.show.missing", lambda extra: ["a_package"])
    facts = json.loads(burnish("env", "--json")[1])
    assert facts["extras"]["models"] == ["a_package"]
    assert facts["threads"] >= 1


def test_a_new_package_is_sound_and_never_overwrites(burnish: Burnish) -> None:
    code, out, err = burnish("new", "compress", "my-method")
    assert code == 0, err
    assert "burnish compress my-method --help" in out
    source = Path("burnish-my-method/src/burnish_my_method/__init__.py").read_text()
    compile(source, "method", "exec")
    assert "$" not in source
    assert "class MyMethod(Compressor):" in source
    assert 'my-method = "burnish_my_method:MyMethod"' in Path("burnish-my-method/pyproject.toml").read_text()
    assert "check_method(MyMethod)" in Path("burnish-my-method/tests/test_my_method.py").read_text()
    code, _, err = burnish("new", "compress", "my-method")
    assert code == 2
    assert "is not empty" in err


# -- claims -----------------------------------------------------------------------------------------------------


@pytest.fixture
def claim(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A claim that is not measured but made up; what it was asked stands in the dict, and its verdict is taken there."""
    from burnish.core.claim import Evidence, Finding

    asked: dict[str, Any] = {"verdict": "holds"}

    def measure(name: str, model: str, **options: Any) -> Evidence:
        asked.update(name=name, model=model, **options)
        options["out"].mkdir(parents=True)
        found = Finding(
            criterion="c", text="A is below B", estimate=-1.25, low=-2, high=-0.5, level=0.95, margin=0, side="below",
            items=7, verdict=asked["verdict"],
        )  # fmt: skip
        return Evidence(
            claim=name, sentence="A is [better] than B.", verdict=asked["verdict"], findings=[found], arms=[],
            model=model, environment={}, command="", minutes=1, date="",
        )  # fmt: skip

    sys.modules["light_parts"].measure = measure  # type: ignore[attr-defined]
    sys.modules["light_parts"].CLAIM = types.SimpleNamespace(default_model="small")  # type: ignore[attr-defined]
    inner = catalogue.reference
    stand_ins = {"burnish.claims:run": "light_parts:measure", catalogue.CLAIMS["boa"]: "light_parts:CLAIM"}
    monkeypatch.setattr(catalogue, "reference", lambda target: inner(stand_ins.get(target, target)))
    return asked


def test_a_claim_is_shown_with_its_interval_verdict_and_report(claim: dict[str, Any], burnish: Burnish) -> None:
    code, out, _ = burnish("claim", "boa", "--scale", "demo", "--dtype", "float32")
    assert code == 0
    for text in ("A is [better] than B.", "A is below B", "-2 to -0.5", "verdict: holds", "report.html"):
        assert text in out, text
    assert (claim["model"], claim["scale"], claim["dtype"]) == ("small", "demo", "float32")
    assert claim["out"] == Path("runs/claim-boa-demo-small")


@pytest.mark.parametrize(("verdict", "code"), [("holds", 0), ("undecided", 4), ("does not hold", 4)])
def test_strict_ends_with_4_unless_the_claim_holds(
    verdict: str, code: int, claim: dict[str, Any], burnish: Burnish
) -> None:
    claim["verdict"] = verdict
    assert burnish("claim", "boa", "--out", "a")[0] == 0
    assert burnish("claim", "boa", "--out", "b", "--strict")[0] == code


def test_the_demo_asks_a_small_claim(claim: dict[str, Any], burnish: Burnish) -> None:
    assert burnish("demo")[0] == 0
    assert (claim["model"], claim["scale"], claim["out"]) == ("small", "demo", Path("runs/demo"))
    code, _, err = burnish("demo", "--tiny", "--out", "r")
    assert code == 0
    assert "whether the claim holds, it cannot show" in err
    assert (claim["model"], claim["scale"], claim["out"]) == ("tiny", "smoke", Path("r"))


def _row(state: str) -> Any:
    from burnish.claims import EvidenceRow
    from burnish.claims.store import Freshness

    changed = ("boa",) if state == "stale" else ()
    return EvidenceRow(
        claim="boa", title="t", sentence="s", paper="RTN 9, BoA 3", ours="RTN 8, BoA 4 [3, 5]", verdict="holds",
        freshness=Freshness(state=state, changed=changed), command="burnish claim boa",
    )  # fmt: skip


@pytest.mark.parametrize(("state", "status"), [("fresh", "stable"), ("stale", "preview")])
def test_the_table_of_claims_and_what_makes_a_method_stable(
    state: str, status: str, burnish: Burnish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = catalogue.reference
    rows = {"burnish.claims:evidence_rows": lambda: [_row(state)]}
    monkeypatch.setattr(catalogue, "reference", lambda target: rows.get(target) or inner(target))
    code, out, err = burnish("claims")
    assert code == 0
    for text in ("RTN 9, BoA 3", "RTN 8, BoA 4 [3, 5]", "holds", state, "burnish claim boa"):
        assert text in out, text
    assert ("boa: changed since: boa" in err) == (state == "stale")
    assert json.loads(burnish("claims", "--json")[1])[0]["freshness"]["state"] == state
    monkeypatch.setattr(catalogue, "RECIPES", tmp_path)
    (tmp_path / "compress").mkdir()
    (tmp_path / "compress" / "boa.toml").write_text("")
    listed = {row["name"]: row["status"] for row in json.loads(burnish("list", "--json")[1])}
    assert (listed["boa"], listed["rtn"]) == (status, "")


def test_models_are_got_listed_and_imported(burnish: Burnish, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    inner = catalogue.reference
    parts: dict[str, Any] = {
        "burnish.models.fetch:fetch": lambda name, notify: asked.append(name) or notify("its licence") or Path("m"),
        "burnish.models.resolve:shelf_rows": lambda: [{"name": "small", "present": True}],
        "burnish.models.resolve:register": lambda name, path: asked.append((name, path)) or path,
    }
    monkeypatch.setattr(catalogue, "reference", lambda target: parts.get(target) or inner(target))
    assert burnish("models", "get", "small") == (0, "m\n", "its licence\n")
    assert burnish("models", "list")[1].splitlines()[-1].split() == ["small", "yes"]
    assert json.loads(burnish("models", "list", "--json")[1]) == [{"name": "small", "present": True}]
    assert burnish("models", "import", "mine", "x.gguf")[0] == 0
    assert asked == ["small", ("mine", Path("x.gguf"))]


# -- recipes ----------------------------------------------------------------------------------------------------

RECIPE = """
title = "Count, then look"
file = "t.txt"

[[steps]]
use = "count"
least = 2

[[steps]]
use = "longest"
"""


@pytest.fixture
def recipe() -> str:
    Path("r.toml").write_text(RECIPE)
    return "r.toml"


def test_a_recipe_hands_results_on_and_keeps_each_steps_own(recipe: str, burnish: Burnish) -> None:
    code, _, err = burnish("run", recipe)
    assert code == 0, err
    assert "run folder: runs/r" in err
    state = json.loads(Path("runs/r/run.json").read_text())
    assert state["metrics"] == {"words": 3, "mean": 17 / 3, "letters": 9, "words_2": 1, "mean_2": 17 / 3}
    assert state["request"]["recipe"]["steps"][0] == {"use": "count", "least": 2}
    for part in ("1-count", "2-longest"):
        assert Path("runs/r/parts", part, "items.parquet").exists()
    assert "finished before" in burnish("run", recipe)[1]
    assert CALLS == ["count t.txt", "longest"]


def test_a_stopped_recipe_does_not_do_its_finished_steps_again(recipe: str) -> None:
    asked = Recipe.read(recipe)
    real = Longest.__call__
    try:
        Longest.__call__ = _stop  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            workflow.run_recipe(asked, "r")
    finally:
        Longest.__call__ = real  # type: ignore[method-assign]
    assert workflow.run_recipe(asked, "r").metrics["letters"] == 9
    assert CALLS == ["count t.txt", "longest"]


def _stop(self: Longest, scores: Scores, run: Run | None = None) -> Scores:
    raise KeyboardInterrupt


def test_a_finished_step_whose_result_is_gone_is_done_again(recipe: str) -> None:
    asked = Recipe.read(recipe)
    workflow.run_recipe(asked, "r")
    for part in ("1-count", "2-longest"):
        Path("r/parts", part, "items.parquet").unlink()
    assert workflow.run_recipe(asked, "r").metrics["letters"] == 9
    assert CALLS == ["count t.txt", "longest"] * 2


def test_a_model_that_cannot_be_saved_is_still_handed_on() -> None:
    Path("m.txt").write_text("unsaveable " * 8)
    steps = [{"use": "halve"}, {"use": "halve"}, {"use": "halve"}]
    asked = Recipe.model_validate({"title": "Halve", "model": "m.txt", "steps": steps})
    result = workflow.run_recipe(asked, "r")
    assert result.fresh
    assert result.saved is None
    assert "not saved" in Path("r/parts/1-halve/events.jsonl").read_text()
    assert CALLS == ["halve"] * 3


def test_all_faults_of_a_recipe_are_said_before_anything_runs(recipe: str, burnish: Burnish) -> None:
    code, _, err = burnish("run", recipe, "--set", "steps.1.bits=7", "--set", "steps.2.use=cuont")
    assert code == 2
    assert "bits" in err
    assert "cuont" in err
    assert CALLS == []
    code, _, err = burnish("recipe", "check", recipe, "--set", "file=nowhere.txt")
    assert code == 0
    code, _, err = burnish("run", recipe, "--set", "file=nowhere.txt")
    assert code == 2
    assert "there is nothing at nowhere.txt" in err


def test_recipes_are_listed_copied_and_checked(
    recipe: str, burnish: Burnish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "comes with no recipes" in burnish("recipe", "list")[1] or catalogue.recipes()
    monkeypatch.setattr(catalogue, "RECIPES", tmp_path / "recipes")
    path = tmp_path / "recipes" / "evaluate" / "look.toml"
    path.parent.mkdir(parents=True)
    path.write_text(RECIPE)
    assert json.loads(burnish("recipe", "list", "--json")[1])[0]["steps"] == "count → longest"
    assert burnish("recipe", "copy", "look", "mine.toml")[0] == 0
    assert Path("mine.toml").read_text() == RECIPE
    assert burnish("recipe", "copy", "look", "mine.toml")[0] == 2
    assert "2 steps, no faults" in burnish("recipe", "check", "mine.toml")[1]
    assert burnish("run", "look", "--dry-run")[0] == 0
    assert CALLS == []


# -- the workflow from Python -----------------------------------------------------------------------------------


def test_goods_that_are_missing_or_unknown_are_named() -> None:
    with pytest.raises(BadInput) as caught:
        workflow.run_method("count", Count(), {"fiel": "t.txt", "other": "gone"}, "r")
    for text in ("no good of count called 'fiel'; did you mean file?", "there is nothing at gone", "count needs file"):
        assert text in caught.value.problem
    assert not Path("r").exists()


def test_an_extra_that_a_good_needs_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.EXTRAS, "models", ("no_such_torch",))
    kind = catalogue.GoodKind("light_parts:read", "light_parts:write", "artifact", ("models",))
    monkeypatch.setitem(catalogue.GOODS, "Model", kind)
    with pytest.raises(MissingExtra):
        workflow.run_method("halve", Halve(), {"model": "t.txt"}, "r")


def test_device_and_dtype_reach_the_loader_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(sys.modules["light_parts"], "read", lambda source, **options: seen.append(options) or "abcd")
    workflow.run_method("halve", Halve(), {"model": "t.txt"}, "a")
    workflow.run_method("halve", Halve(), {"model": "t.txt"}, "b", place=workflow.Place("cpu", "float16"))
    assert seen == [{}, {"device": "cpu", "dtype": "float16"}]
    assert json.loads(Path("b/run.json").read_text())["request"]["dtype"] == "float16"


# -- small parts ------------------------------------------------------------------------------------------------


@given(st.sampled_from([2, 3, "auto", True, -1]))
def test_every_option_of_a_literal_is_read_back(option: Any) -> None:
    assert fields.from_text(Literal[2, 3, "auto", True, -1], str(option)) == option


@given(st.lists(st.integers()))
def test_lists_are_read_from_repeats_and_from_commas(numbers: list[int]) -> None:
    texts = [str(number) for number in numbers]
    assert fields.from_text(list[int], texts) == texts
    if texts:
        assert fields.from_text(list[int], [",".join(texts)]) == texts


@given(st.lists(st.sampled_from(["--a", "--b=1", "x", "-3"])))
def test_no_word_of_a_command_is_lost(words: list[str]) -> None:
    arguments, lines = fields.split_words(words, [], places=1)
    flags = [word for word in words if word.startswith("--")]
    assert len([line for line in lines if "no such flag" in line]) == len(flags)
    eaten = sum(word == "--a" and not after.startswith("--") for word, after in pairwise(words))
    assert len(arguments) + len(lines) + eaten == len(words)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (Literal[2, 3], "2|3"),
        (float | None, "float|none"),
        (tuple[Literal["q", "k"], ...], "q|k…"),
        (dict[str, int], "json"),
        (bool, "yes|no"),
        (Path, "path"),
        (str, "text"),
    ],
)
def test_types_are_shown_as_what_is_typed(annotation: Any, text: str) -> None:
    assert fields.type_text(annotation) == text


def test_json_is_read_for_mappings() -> None:
    assert fields.from_text(dict[str, int], '{"a": 1}') == {"a": 1}
    assert fields.from_text(dict[str, int], "{a") == "{a"


@pytest.mark.parametrize(
    ("words", "count"),
    [("--threads 3", 3), ("x --threads=5 y", 5), ("--threads", None), ("--threads zero", None), ("--threads 0", None)],
)
def test_threads_are_read_before_flags_are_parsed(words: str, count: int | None) -> None:
    assert threads.asked_threads(words.split()) == count


def test_threads_are_set_for_every_library(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(set_num_threads=seen.append))
    for name in threads.VARIABLES:
        monkeypatch.setenv(name, "7")
    assert threads.use_threads(None) == 7
    assert threads.use_threads(2) == 2
    assert [os.environ[name] for name in threads.VARIABLES] == ["2"] * 3
    assert seen == [7, 2]
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert 1 <= threads.default_threads() <= (os.cpu_count() or 1)


def test_user_text_is_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    look.table(("[b]a[/b]",), [["[red]x[/red]"], ["[/]"]])
    look.problem(BadInput("[bold]p", "[/f]"))
    out, err = capsys.readouterr()
    assert "[b]a[/b]" in out
    assert "[red]x[/red]" in out
    assert err == "error: [bold]p\nfix: [/f]\n"
