"""The sandbox: what a well-behaved program gets, what goes in and comes out, levels, and the spawner."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxes import (
    at,
    box,
    each_level,  # noqa: F401  a fixture
    folder_outside,  # noqa: F401  a fixture
    run,
    without_walls,  # noqa: F401  a fixture
)

from burnish.core.errors import BadInput, Unsupported
from burnish.llm.sandbox import Program, Sandbox, spawner, strength, workspace

# -- what a well-behaved program gets ----------------------------------------------------------------------------------


def test_a_program_gets_its_input_and_hands_back_everything(level: str) -> None:
    outcome = run(
        """
        import os, sys
        print(sys.stdin.read().upper())
        print("trouble", file=sys.stderr)
        os.write(3, b"result")
        open("out/answer.txt", "w").write(open("data/in.txt").read() * 2)
        """,
        stdin="hello",
        files={"data/in.txt": "ab", "out/old.bin": b"\x00"},
        collect=["out/*.txt"],
    )
    assert (outcome.status, outcome.code, outcome.text) == ("ok", 0, "HELLO\n"), outcome
    assert (outcome.stderr, outcome.result, outcome.files) == (b"trouble\n", b"result", {"out/answer.txt": b"abab"})
    assert outcome.ok
    assert not outcome.truncated
    assert outcome.level == level
    assert outcome.cpu_seconds > 0
    assert 0 < outcome.seconds < 20
    assert 1 < outcome.peak_mb < 200


def test_the_exit_code_tells_how_a_program_ended(level: str) -> None:
    expected: list[tuple[str | list[str], str, int]] = [
        ("raise SystemExit(3)", "error", 3),
        ("1 / 0", "error", 1),
        ("import os; os._exit(0)", "ok", 0),
        ("import os; os.kill(os.getpid(), 11)", "error", -11),
        (["no-such-program"], "error", 127),
        (["sh", "-c", "exit 4"], "error", 4),
        ("def f(", "error", 1),
        ("print('\ud800')", "error", 1),
        (["\ud800"], "error", 127),
        ("", "ok", 0),
    ]
    outcomes = box().run_many([code for code, _, _ in expected])
    assert [(outcome.status, outcome.code) for outcome in outcomes] == [tuple(rest) for _, *rest in expected]


def test_python_is_isolated_and_the_same_each_time(level: str) -> None:
    code = "import sys; print(hash('a'), sys.flags.no_user_site, sys.flags.safe_path)\nimport mine"
    first, second = run(code, files={"mine.py": ""}), run(code, files={"mine.py": ""}, env={"PYTHONPATH": "."})
    assert first.text == second.text
    assert first.text.split()[1:] == ["1", "True"]
    assert b"No module named 'mine'" in first.stderr
    assert second.ok


def test_files_and_folders_of_the_caller_are_copied(level: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "pkg" / "a.py").write_text("print('a')")
    (project / "link.py").symlink_to("pkg/a.py")
    outcome = box().run(["python", "p/link.py"], files={"p": project, "p/pkg/b.py": "", "c.py": project / "pkg/a.py"})
    assert outcome.text == "a\n", outcome
    assert not (project / "pkg" / "b.py").exists()


def test_run_many_keeps_the_order(level: str) -> None:
    programs = [f"import time; time.sleep({0.2 if i == 0 else 0}); print({i})" for i in range(5)]
    outcomes = box().run_many([*programs, Program(["cat"], stdin="5\n")], jobs=3)
    assert [outcome.text for outcome in outcomes] == [f"{i}\n" for i in range(6)]


def test_nothing_but_the_streams_is_open(level: str) -> None:
    code = "import os\nfor fd in range(4096):\n try: os.fstat(fd); print(fd)\n except OSError: pass"
    assert run(code).text.split() == ["0", "1", "2", "3"]


# -- what goes in and comes out ----------------------------------------------------------------------------------------


def test_collecting_follows_no_link(level: str, outside: Path) -> None:
    outcome = run(
        f"""
        import os
        os.symlink("{outside}/secret.txt", "link")
        os.symlink("{outside}", "folder")
        os.mkfifo("fifo")
        os.makedirs("deep/er")
        open("deep/er/file", "w").write("mine")
        open("twice", "w").close()
        os.link("twice", "again")
        os.symlink("deep/er/file", "inside")
        """,
        collect=["*"],
    )
    assert outcome.ok, outcome
    assert outcome.files == {"deep/er/file": b"mine"}
    assert list(outcome.left_out) == ["again", "fifo", "folder", "inside", "link", "twice"]


def test_collecting_is_bounded(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MAX_COLLECTED", 3)
    code = "for name in 'abcdef': open(name, 'wb').write(bytes(600_000))"
    outcome = run(code, sandbox=box(files_mb=4), collect=["[abc]", "f"])
    assert list(outcome.files) == ["a", "b", "c"]
    assert list(outcome.left_out) == ["f"]
    outcome = run("for name in 'ab': open(name, 'wb').write(bytes(600_000))", sandbox=box(files_mb=1), collect=["*"])
    assert (list(outcome.files), list(outcome.left_out)) == (["a"], ["b"]) or outcome.status == "files"


def test_nothing_is_left_behind(level: str, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(outside))
    outcome = run("""
        import os
        os.makedirs("locked/inner")
        open("locked/inner/file", "w").close()
        os.chmod("locked/inner", 0)
        os.chmod("locked", 0)
        for _ in range(1100):
            os.mkdir("d" * 20)
            os.chdir("d" * 20)
        print("dug")
    """)  # fmt: skip
    assert outcome.text == "dug\n" or outcome.status == "files", outcome
    assert os.listdir(outside) == ["secret.txt"]


def test_removing_a_tree_follows_no_link(outside: Path) -> None:
    tree = outside / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    (tree / "dangling").symlink_to("nowhere")
    workspace.remove_tree(tree)
    assert os.listdir(outside) == ["secret.txt"]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o777


def test_names_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "out").symlink_to(tmp_path)
    files: dict[str, str | bytes | Path] = {
        "/etc/x": "",
        "a/../../x": "",
        "": "",
        "p": tmp_path / "project",
        "q": tmp_path / "none",
        "fine/x": "",
    }
    with pytest.raises(BadInput) as caught:
        Program("", files=files, collect=["../*"])
    for fault in ("'/etc/x'", "'a/../../x'", "'': not a path", "link that leaves", "none does not exist", "'../*'"):
        assert fault in caught.value.problem
    assert "fine/x" not in caught.value.problem


def test_a_file_in_the_place_of_a_folder_is_refused() -> None:
    with pytest.raises(BadInput, match="a/b"):
        run("", files={"a": "", "a/b": ""})


@given(st.text(alphabet="a./\\\0 ", max_size=8))
def test_accepted_names_stay_inside(name: str) -> None:
    try:
        Program("", files={name: ""}) if name else None
    except BadInput:
        return
    inside = os.path.normpath(os.path.join("/base/work", name))
    assert inside.startswith("/base/work")


def test_bad_settings_and_programs_are_refused_with_all_their_faults() -> None:
    with pytest.raises(BadInput) as caught:
        Sandbox(seconds=float("inf"), memory_mb=-1, processes=0, readable=["/no/such/place", "/"])
    assert all(
        word in caught.value.problem
        for word in ("seconds", "memory_mb", "processes", "/no/such/place", "a / of their own")
    )
    with pytest.raises(BadInput) as caught:
        Program([], env={"A=B": "", "OK": "\0"})
    assert all(word in caught.value.problem for word in ("empty", "A=B", "OK"))
    with pytest.raises(BadInput):
        Sandbox().run_many(["print(1)", []])


# -- levels, and the spawner -------------------------------------------------------------------------------------------


def test_a_weaker_level_is_refused_unless_accepted(
    monkeypatch: pytest.MonkeyPatch, unwalled: Callable[[], str]
) -> None:
    unwalled()
    strict = Sandbox()
    for refused in (strict.check, lambda: strict.run("print(1)"), lambda: strict.run_many(["print(1)"])):
        with pytest.raises(Unsupported) as caught:
            refused()
        assert all(word in str(caught.value) for word in ("network", "reads", "writes", "allow_weaker"))
    accepted = Sandbox(allow_weaker=True).run("print(1)")
    assert {"network", "reads", "writes"} <= set(accepted.lacks)
    assert set(accepted.lacks) <= set(strength.GUARANTEES)
    assert "network" not in Sandbox(network=True).lacks


def test_the_strongest_level_is_found() -> None:
    strengths = {level: at(level) for level in strength.levels()}
    working = [level for level, found in strengths.items() if not isinstance(found, str)]
    assert Sandbox().level == working[0]
    assert set(strength.strength().refused) == {level for level, found in strengths.items() if isinstance(found, str)}


def test_a_killed_spawner_is_started_again() -> None:
    assert run("print(1)").text == "1\n"
    process = spawner._running[os.getpid()].process
    process.kill()
    process.wait()
    assert run("print(2)").text == "2\n"
    spawner.close()
    assert run("print(3)").text == "3\n"


def test_a_forked_child_uses_a_spawner_of_its_own() -> None:
    assert run("print(1)").text == "1\n"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if run("print(2)").text == "2\n" else 2
            spawner.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run("print(3)").text == "3\n"


def test_programs_find_the_packages_of_this_python(level: str) -> None:
    outcome = run("import numpy; print(numpy.arange(4).sum())")
    assert outcome.text == "6\n", outcome


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_compiled_programs_of_the_working_folder_run(level: str) -> None:
    source = '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n'
    if level == "landlock" and not strength.strength().as_other:
        pytest.skip("no file can be made executable at this level")
    outcome = box().run(["sh", "-c", "cc -o hello hello.c && ./hello"], files={"hello.c": source})
    assert outcome.text == "compiled\n", outcome
