"""Errors a user can act on: each says what is wrong and what to do next.

The command line prints them without a traceback and ends with their ``exit_code``. Anything that is not a
``BurnishError`` is a bug in burnish and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class BurnishError(Exception):
    """A problem that the user can mend.

    Args:
        problem: What is wrong, naming the thing that is wrong.
        fix: What to do about it; may be empty.
    """

    exit_code = 2

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem if not fix else f"{problem}\n  fix: {fix}")
        self.problem = problem
        self.fix = fix


class BadInput(BurnishError):
    """Something that the user gave (a field, a file, a text) cannot be used."""

    @classmethod
    def of(cls, what: str, faults: Sequence[str], fix: str = "") -> BadInput:
        """One error that lists every fault of one input, so that nobody mends them one by one."""
        return cls("\n".join([what, *(f"  {fault}" for fault in faults)]), fix)


class UnknownName(BurnishError):
    """A name that is not in a list of known names; offers the nearest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = "") -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if near:
            fix = f"did you mean {' or '.join(near)}?"
        elif where:
            fix = where
        else:
            fix = "one of: " + ", ".join(names)
        super().__init__(f"there is no {kind} called {name!r}", fix)
        self.name = name


class MissingExtra(BurnishError):
    """A part of burnish needs packages that are not installed."""

    exit_code = 3

    def __init__(self, what: str, extra: str, missing: Sequence[str] = ()) -> None:
        lacks = f" ({', '.join(missing)} not found)" if missing else ""
        super().__init__(f"{what} needs the extra {extra!r}{lacks}", f'pip install "burnish[{extra}]"')
        self.extra = extra


class Unsupported(BurnishError):
    """A combination that burnish cannot do right, and therefore refuses by name."""

    def __init__(self, what: str, why: str, fix: str = "") -> None:
        super().__init__(f"{what} is not supported: {why}", fix)


class DoesNotFit(BurnishError):
    """A job needs more memory or disk than there is."""

    def __init__(self, what: str, needs: str, has: str, fix: str = "") -> None:
        super().__init__(f"{what} needs {needs}, and there is {has}", fix)


class Mismatch(BurnishError):
    """Two things that must be equal are not (a digest, a reloaded model)."""


class ClaimFails(BurnishError):
    """A claim does not hold, and the caller asked to be told so by the exit code."""

    exit_code = 4
