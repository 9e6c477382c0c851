"""The program ``burnish``: its commands, and how it ends.

Exit codes: 0 done · 1 a bug in burnish · 2 bad input · 3 an extra is missing · 4 a claim does not hold, with --strict ·
130 stopped by Ctrl-C or by SIGTERM.
"""

from __future__ import annotations

import errno
import inspect
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from types import FrameType
from typing import Any

from cyclopts import App, CycloptsError, Group, UnknownCommandError

from burnish import catalogue
from burnish.cli import evidence, fields, look, models, new, recipes, show
from burnish.cli.threads import asked_threads, use_threads
from burnish.core.errors import BadInput, BurnishError, UnknownName

STOPPED = 130
NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENOTDIR, errno.ENAMETOOLONG)
"""Errors of the operating system that the user can mend."""
DO = Group("Do", sort_key=0)
RESUMABLE = frozenset({*catalogue.VERBS, "run", "claim", "demo"})
"""Commands that go on where they stopped."""


def build() -> App:
    """The whole command line. A verb's methods are looked up only when that verb is asked for."""
    app = App(
        name="burnish",
        help="Does this paper's idea help my model, on my machine? And if it does, hand me the result.",
        version=lambda: version("burnish"),
        help_format="plaintext",
        console=look.screen(),
        group_commands=Group("Look and manage", sort_key=1),
        suppress_keyboard_interrupt=False,
    )
    for verb, text in catalogue.VERBS.items():
        app.command(f"burnish.cli.commands:verb {verb}", name=verb, help=text, group=DO)
    for module in (show, recipes, evidence, models, new):
        module.register(app, DO)
    return app


def dispatch(tokens: Sequence[str]) -> None:
    """Find the command, and run it."""
    app = build()
    try:
        command, bound, unused, _ = app.parse_known_args(list(tokens))
    except UnknownCommandError as error:
        raise _unknown_command(error) from None
    if unused:
        flags = [fields.flag(name) for name in inspect.signature(command).parameters]
        _, wrong = fields.split_words(unused, [*flags, "--help"])
        raise BadInput.of("these words of the command are not understood", wrong)
    call: Any = command
    call(*bound.args, **bound.kwargs)


def run(tokens: Sequence[str]) -> int:
    """Run a command; returns the exit code. What the user can mend is said in two lines, a bug keeps its traceback."""
    try:
        _check_characters(tokens)
        dispatch(tokens)
        sys.stdout.flush()
    except BurnishError as error:
        error.fix = error.fix or _help_for(tokens)
        look.problem(error)
        return error.exit_code
    except CycloptsError as error:
        error.verbose = False
        spoken = " ".join(["burnish", *(error.command_chain or ())])
        look.problem(BadInput(str(error).strip(), f"`{spoken} --help` lists what it takes"))
        return BadInput.exit_code
    except KeyboardInterrupt:
        again = "; the same command goes on where it stopped" if set(tokens[:1]) & RESUMABLE else ""
        look.note(f"stopped{again}")
        return STOPPED
    except BrokenPipeError:
        look.silence()
    except OSError as error:
        if error.errno not in NOT_OURS:
            return _bug()
        look.problem(BadInput(f"{error.filename or 'the disk'}: {error.strerror}", "choose another folder"))
        return BadInput.exit_code
    except Exception:
        return _bug()
    return 0


def main() -> None:
    """Entry point of the program."""
    signal.signal(signal.SIGTERM, _stop)
    tokens = sys.argv[1:]
    use_threads(asked_threads(tokens))
    sys.exit(run(tokens))


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _check_characters(tokens: Sequence[str]) -> None:
    """Refuse words that are no text: they are written down as text, in what a run was asked."""
    wrong = [token for token in tokens if not token.isprintable() and any("\ud800" <= c <= "\udfff" for c in token)]
    if wrong:
        raise BadInput.of("these words are not UTF-8", wrong, "rename the file, or reach it through a link")


def _help_for(tokens: Sequence[str]) -> str:
    """A way out of an error that names none: the help of the command."""
    words = tokens[: next((place for place, token in enumerate(tokens) if token.startswith("-")), len(tokens))]
    known = [words[0]] if words and words[0] in build() else []
    if known and known[0] in catalogue.VERBS:
        names = [entry.name.split() for entry in catalogue.entries(known[0])]
        known += next((name for name in names if name == list(words[1 : 1 + len(name)])), [])
    return f"mend what is named here; `{' '.join(['burnish', *known])} --help` says what the command takes"


def _bug() -> int:
    sys.stderr.write(look.clean(traceback.format_exc()))
    look.note("this is a bug in burnish, not a mistake of yours; please report it with the lines above")
    return 1


def _unknown_command(error: UnknownCommandError) -> BurnishError:
    chain = list(error.command_chain or ())
    word = (error.unused_tokens or ["?"])[0]
    app = error.app
    known = [name for name in (app or build()) if not name.startswith("-")]
    for entry in catalogue.entries(chain[0]) if chain else ():
        if entry.name == word and entry.fault:
            return BadInput(f"the method {word!r} of the package {entry.package} cannot be used: {entry.fault}")
    kind = f"method of `burnish {' '.join(chain)}`" if chain and chain[0] in catalogue.VERBS else "command"
    spoken = " ".join(["burnish", *chain])
    return UnknownName(kind, word, known, f"`{spoken} --help` lists what there is")
