"""Help for the tests of the sandbox: each level that works on this machine, a folder outside, short ways to run.

Most attacks run at each level. What a level does not promise is attacked at the level without walls too, to show that
the attack is real. Attacks are bounded, so that a sandbox that fails harms nobody.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from burnish.llm.sandbox import Outcome, Sandbox, strength

LINUX = sys.platform == "linux"

at = functools.cache(strength.at)
"""The strength of a level on this machine, or why it does not work here."""


def use(level: strength.Level, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have sandboxes use this level, or skip the test where it does not work."""
    if level not in strength.levels():
        pytest.skip(f"this kind of system has no {level}")
    found = at(level)
    if isinstance(found, str):
        pytest.skip(f"no {level} here: {found}")
    monkeypatch.setattr(strength, "strength", lambda: found)
    return level


@pytest.fixture(name="level", params=["namespaces", "landlock", "process"])
def each_level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each level that works here."""
    return use(request.param, monkeypatch)


@pytest.fixture(name="walls", params=["namespaces", "landlock"])
def each_level_with_walls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each level that has walls."""
    return use(request.param, monkeypatch)


@pytest.fixture(name="unwalled")
def without_walls(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Switches to the level without walls, to show that an attack is real."""
    return lambda: use("process", monkeypatch)


@pytest.fixture(name="outside")
def folder_outside() -> Iterator[Path]:
    """A folder of the host that every user may read and write; not below the folder for temporary files."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="outside-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "secret.txt").write_text("the secret")
        (folder / "secret.txt").chmod(0o666)
        yield folder


def box(**limits: object) -> Sandbox:
    return Sandbox(**{"seconds": 20.0, "allow_weaker": True, **limits})  # type: ignore[arg-type]


def run(code: str, *, sandbox: Sandbox | None = None, **given: object) -> Outcome:
    return (sandbox or box()).run(textwrap.dedent(code), **given)  # type: ignore[arg-type]


def needs(promise: str) -> None:
    if why := strength.strength().lacks.get(promise):
        pytest.skip(f"{promise} is not promised here: {why}")
