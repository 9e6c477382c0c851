"""``burnish new VERB NAME``: a package outside burnish with one method in it, which works and is tested as it stands."""

from __future__ import annotations

import keyword
import re
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Annotated, NamedTuple

from cyclopts import App, Group, Parameter

from burnish import catalogue
from burnish.cli import look
from burnish.core.errors import BadInput, UnknownName, Unsupported
from burnish.core.files import write_text


class Pattern(NamedTuple):
    """What a new method of one verb looks like."""

    base: str
    """Its class in `burnish.core.shapes`."""
    imports: str
    """Further lines that import something light."""
    typing: str
    """What is imported for type checkers only: ``burnish --help`` must not import torch."""
    goods: str
    gives: str
    says: str
    """The first line of its docstring."""
    setting: str
    about: str
    body: str


PATTERNS = {
    "compress": Pattern(
        "Compressor",
        "",
        "    from burnish.models import Model",
        "model: Model",
        "Model",
        "Keep a few significant binary digits of every weight.",
        "digits: int = Field(default=6, ge=1, le=20)",
        "Significant binary digits that are kept.",
        """\
        model = model.fork()
        for block in ensure(run).chain(model.blocks(), step="round"):
            for site in block.sites():
                mantissa, exponent = site.weight.float().frexp()
                site.replace((mantissa * 2**self.digits).round().ldexp(exponent - self.digits))
        return model.then(f"$name: {self.digits} significant digits")
""",
    ),
    "evaluate": Pattern(
        "Evaluation",
        "from burnish.data.scores import Scores\n",
        "    from datasets import Dataset",
        "text: Dataset",
        "Scores",
        "Count the long words of every text.",
        "letters: int = Field(default=8, ge=1)",
        "Letters that make a word long.",
        """\
        rows = []
        for number, words in enumerate(row.split() for row in text["text"]):
            long = sum(len(word) >= self.letters for word in words)
            rows.append({"item_id": str(number), "model": "", "long_words": long, "words": len(words)})
        ensure(run).metric(long_words=sum(row["long_words"] for row in rows))
        return Scores.of(rows)
""",
    ),
    "synthesize": Pattern(
        "Transform",
        "",
        "    from datasets import Dataset",
        "data: Dataset",
        "Dataset",
        "Keep the texts that are long enough.",
        "words: int = Field(default=5, ge=0)",
        "Words that a text must have.",
        """\
        kept = [number for number, text in enumerate(data["text"]) if len(text.split()) >= self.words]
        ensure(run).metric(kept=len(kept), dropped=len(data) - len(kept))
        return data.select(kept)
""",
    ),
}

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$package"
version = "0.1.0"
description = "$says"
requires-python = ">=3.11"
dependencies = ["burnish[models]>=$version"]

[project.optional-dependencies]
dev = ["pytest"]

[project.entry-points."burnish.$verb"]
$name = "$module:$cls"
"""

METHOD = '''\
"""$says

## How it works

What is done, in the paper's symbols.

## Differences

From the paper, and from its released code, and why.

## When not to use it

## References
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from burnish.core.run import Run, ensure
from burnish.core.shapes import $base
${imports}from pydantic import Field

if TYPE_CHECKING:
$typing


class $cls($base):
    """$says"""

    $setting
    """$about"""

    def __call__(self, $goods, run: Run | None = None) -> $gives:
        """Do it."""
$body'''

TEST = '''\
"""Everything that burnish asks of a method."""

from burnish.testing import check_method
from $module import $cls


def test_method() -> None:
    check_method($cls)
'''


def register(app: App, do: Group) -> None:
    """Add this command."""
    app.command(new)


def new(
    verb: str,
    name: str,
    /,
    *,
    out: Annotated[Path | None, Parameter(help="Its folder; by default burnish-<name>.")] = None,
) -> None:
    """Start a package of your own with one method in it, which burnish finds once it is installed.

    Parameters
    ----------
    verb
        What the method does: compress, evaluate or synthesize.
    name
        Its name, such as my-method.
    """
    folder = out or Path(f"burnish-{name}")
    _check(verb, name, folder)
    pattern = PATTERNS[verb]
    module = "burnish_" + name.replace("-", "_")
    words = {
        "name": name,
        "verb": verb,
        "package": f"burnish-{name}",
        "module": module,
        "cls": "".join(part.capitalize() for part in name.split("-")),
        "version": version("burnish"),
    }
    words |= {key: Template(value).safe_substitute(words) for key, value in pattern._asdict().items()}
    files = {
        "pyproject.toml": PYPROJECT,
        f"src/{module}/__init__.py": METHOD,
        f"tests/test_{name.replace('-', '_')}.py": TEST,
    }
    for path, text in files.items():
        write_text(folder / path, Template(text).substitute(words))
        look.say(str(folder / path))
    look.say(f"\npip install -e '{folder}[dev]'\nburnish {verb} {name} --help\npytest {folder}")


def _check(verb: str, name: str, folder: Path) -> None:
    if verb not in catalogue.VERBS:
        raise UnknownName("verb", verb, catalogue.VERBS)
    if verb not in PATTERNS:
        raise Unsupported(
            f"`burnish new {verb}`",
            "this version of burnish has no pattern for it",
            f"the patterns are {', '.join(PATTERNS)}",
        )
    faults = []
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(name):
        faults.append(f"{name!r}: a name is small letters and digits, in words joined by hyphens")
    if any(entry.name == name for entry in catalogue.entries()):
        faults.append(f"{name!r}: there is a method of that name already")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        faults.append(f"{folder}: is there already, and is not empty")
    if faults:
        raise BadInput.of("the package cannot be made", faults, "choose another name, or another --out")
