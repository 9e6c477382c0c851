"""The command line, with made-up methods that need no torch."""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from made_up import CALLS, Burnish, Count, burnish, methods

from burnish import catalogue, workflow
from burnish.cli import new
from burnish.core.errors import BadInput
from burnish.core.run import Run
from burnish.core.shapes import Analysis

__all__ = ["burnish", "methods"]
"""Fixtures; `methods` is used by every test here."""

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
    assert "artifact is found again" in burnish("evaluate", "halve", "t.txt", "--out", "s")[2]
    assert "found again" not in burnish("evaluate", "halve", "t.txt", "--out", "u", "--no-reload")[2]
    assert CALLS == ["halve"] * 4


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
    assert "t.txt is no folder, and a run needs a folder" in err


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
        ("synthesize x", ["`burnish synthesize` is not supported", "no methods for it yet"]),
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
    assert "the columns are folder, status" in err


def test_env_names_the_extras(burnish: Burnish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.cli.show.missing", lambda extra: ["a_package"])
    facts = json.loads(burnish("env", "--json")[1])
    assert facts["extras"]["models"] == ["a_package"]
    assert facts["threads"] >= 1


@pytest.mark.parametrize(("verb", "base"), [(verb, pattern.base) for verb, pattern in new.PATTERNS.items()])
def test_a_new_package_is_sound_and_never_overwrites(
    verb: str, base: str, burnish: Burnish, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = burnish("new", verb, "my-method")
    assert code == 0, err
    assert f"burnish {verb} my-method --help" in out
    source = Path("burnish-my-method/src/burnish_my_method/__init__.py").read_text()
    assert "$" not in source
    monkeypatch.syspath_prepend("burnish-my-method/src")
    monkeypatch.delitem(sys.modules, "burnish_my_method", raising=False)
    made = importlib.import_module("burnish_my_method").MyMethod
    monkeypatch.delitem(sys.modules, "burnish_my_method")
    assert made.__bases__[0].__name__ == base
    assert all(field.description for field in made.model_fields.values())
    assert made.goods()[0].required
    assert 'my-method = "burnish_my_method:MyMethod"' in Path("burnish-my-method/pyproject.toml").read_text()
    assert "check_method(MyMethod)" in Path("burnish-my-method/tests/test_my_method.py").read_text()
    code, _, err = burnish("new", verb, "my-method")
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
    sys.modules["light_parts"].resolve = lambda model, notify: asked.update(resolved=model)  # type: ignore[attr-defined]
    stand_ins = {
        "burnish.claims:run": "light_parts:measure",
        "burnish.models.resolve:resolve": "light_parts:resolve",
        catalogue.CLAIMS["boa"]: "light_parts:CLAIM",
    }
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
    code, out, err = burnish("demo")
    assert code == 0, err
    assert "artifact is found again" in out
    assert (claim["model"], claim["scale"], claim["out"]) == ("small", "demo", Path("runs/demo"))
    assert claim["resolved"] == "small"
    code, _, err = burnish("demo", "--tiny", "--out", "r")
    assert code == 0
    assert "whether the claim holds, it cannot show" in err
    assert (claim["model"], claim["scale"], claim["out"]) == ("tiny", "demo", Path("r"))


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


def test_a_name_that_a_condition_nearly_hits_is_offered(burnish: Burnish) -> None:
    burnish("evaluate", "count", "t.txt")
    assert "did you mean metrics.words for metrics.wrds?" in burnish("runs", "--where", "metrics.wrds < 30")[2]


def test_a_run_that_was_killed_is_shown_as_killed(burnish: Burnish) -> None:
    run = Run("r", {"use": "count"})
    assert json.loads(burnish("runs", ".", "--json")[1])[0]["status"] == "running"
    run.close()
    assert json.loads(burnish("runs", ".", "--json")[1])[0]["status"] == "killed"
    assert json.loads(Path("r/run.json").read_text())["status"] == "running"


def test_runs_in_folders_with_odd_names_are_listed(burnish: Burnish) -> None:
    burnish("evaluate", "count", "t.txt", "--out", "plain")
    os.mkdir(b"odd\xff\x1b")
    Path(os.fsdecode(b"odd\xff\x1b"), "run.json").write_text(Path("plain", "run.json").read_text())
    code, out, err = burnish("runs", ".", "--where", "status = 'done'")
    assert code == 0, err
    assert "odd\\xff\\x1b" in out
    assert "\x1b" not in out
    assert len(json.loads(burnish("runs", ".", "--json")[1])) == 2


def test_words_that_are_not_utf8_are_refused(burnish: Burnish) -> None:
    code, _, err = burnish("evaluate", "count", os.fsdecode(b"bad\xff"))
    assert code == 2
    assert "these words are not UTF-8" in err
    assert "bad\\xff" in err


@pytest.mark.parametrize("kind", ["device", "link to nowhere"])
def test_no_folder_can_be_made_where_something_else_is(kind: str, burnish: Burnish) -> None:
    Path("link").symlink_to("gone/further")
    out = "/dev/null" if kind == "device" else "link"
    for command in (["evaluate", "count", "t.txt"], ["claim", "small-samples", "--scale", "smoke"]):
        code, _, err = burnish(*command, "--out", out)
        assert code == 2
        assert "a run needs a folder" in err
        assert "fix: choose another --out" in err


def test_every_error_has_a_way_out(burnish: Burnish, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise BadInput("it is odd")

    monkeypatch.setattr("burnish.workflow.run_method", refuse)
    err = burnish("evaluate", "count", "t.txt", "--out", "r")[2]
    assert "error: it is odd\nfix: mend what is named here; `burnish evaluate count --help` says what" in err


def test_whole_numbers_that_fit_nowhere_are_named(burnish: Burnish) -> None:
    code, _, err = burnish("evaluate", "count", "t.txt", "--least", "9" * 26)
    assert code == 2
    assert "least: is too large" in err


def test_a_claims_plan_measures_nothing(burnish: Burnish) -> None:
    code, out, err = burnish("claim", "small-samples", "--dry-run", "--out", "r")
    assert code == 0, err
    for text in ("Nothing is done", "wilson", "coverage is above", "criteria", "measured before"):
        assert text in out
    assert not Path("r").exists()
