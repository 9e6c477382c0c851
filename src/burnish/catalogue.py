"""The table of contents: every method, claim, recipe and kind of good by name. Importing it imports no method.

Other packages add methods through entry points of the group ``burnish.<verb>``::

    [project.entry-points."burnish.compress"]
    hello = "burnish_hello:Hello"

A plug-in that is broken, or whose name is taken, is listed with its fault and harms nothing else.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from burnish.core.errors import BadInput, MissingExtra, UnknownName
from burnish.core.extras import EXTRAS, missing

if TYPE_CHECKING:
    from burnish.core.method import Method

Kind = Literal["baseline", "paper", "tool", "plug-in"]

VERBS: dict[str, str] = {
    "compress": "Make a model smaller.",
    "serve": "Make a model faster, or longer in memory, while it answers.",
    "train": "Change a model's weights by training.",
    "synthesize": "Make or filter data.",
    "search": "Find programs and designs that score well.",
    "evaluate": "Measure models, and say what the figures mean.",
    "modalities": "Molecules, circuits, meshes and other things that are not text.",
}
"""What users can do, and what it is for."""

METHODS: dict[str, str] = {
    "rtn": "burnish.compress.rtn:RTN",
    "gptq": "burnish.compress.gptq:GPTQ",
    "gptaq": "burnish.compress.gptaq:GPTAQ",
    "awq": "burnish.compress.awq:AWQ",
    "smoothquant": "burnish.compress.smoothquant:SmoothQuant",
    "quarot": "burnish.compress.quarot:QuaRot",
    "boa": "burnish.compress.boa:BoA",
    "flatquant": "burnish.compress.flatquant:FlatQuant",
    "quest": "burnish.compress.quest:QuEST",
    "ks": "burnish.compress.ks:KS",
    "pretrain": "burnish.train.pretrain:Pretrain",
    "divergence": "burnish.evaluate.divergence:Divergence",
    "reload": "burnish.evaluate.reload:Reload",
    "interval": "burnish.evaluate.interval:Interval",
    "compare": "burnish.evaluate.compare:Compare",
    "arena curate": "burnish.evaluate.arena.curate:ArenaCurate",
    "arena judge": "burnish.evaluate.arena.judge:ArenaJudge",
    "arena score": "burnish.evaluate.arena.score:ArenaScore",
    "arena validity": "burnish.evaluate.arena.validity:ArenaValidity",
    "devai report": "burnish.evaluate.devai.report:Report",
    "devai judge": "burnish.evaluate.devai.judge:Judge",
    "devai precheck": "burnish.evaluate.devai.precheck:Precheck",
    "specialist copy": "burnish.evaluate.specialist.copy:SpecialistCopy",
    "specialist judge": "burnish.evaluate.specialist.judge:SpecialistJudge",
    "specialist rank": "burnish.evaluate.specialist.rank:SpecialistRank",
    "scaling-law": "burnish.evaluate.scaling_law:ScalingLaw",
    "contamination inject": "burnish.evaluate.contamination.inject:ContaminationInject",
    "contamination measure": "burnish.evaluate.contamination.measure:ContaminationMeasure",
    "contamination scan": "burnish.evaluate.contamination.scan:ContaminationScan",
    "contamination score": "burnish.evaluate.contamination.score:ContaminationScore",
    "contamination probe": "burnish.evaluate.contamination.probe:ContaminationProbe",
}
"""Name, as users type it (one word, or two as in "arena curate"), to module and class."""

BASELINES = frozenset({"rtn", "gptq", "gptaq", "awq", "smoothquant", "quarot", "devai precheck", "specialist copy"})
TOOLS = frozenset(
    {
        "divergence",
        "reload",
        "pretrain",
        "specialist rank",
        "contamination scan",
        "contamination score",
        "contamination probe",
    }
)

CLAIMS: dict[str, str] = {
    "boa": "burnish.claims.boa:CLAIM",
    "flatquant": "burnish.claims.flatquant:CLAIM",
    "small-samples": "burnish.claims.small_samples:CLAIM",
    "devai": "burnish.claims.devai:CLAIM",
    "arena": "burnish.claims.arena:CLAIM",
    "specialist-copy": "burnish.claims.specialist_copy:CLAIM",
    "specialist": "burnish.claims.specialist:CLAIM",
    "contamination": "burnish.claims.contamination:CLAIM",
    "ks": "burnish.claims.ks:CLAIM",
    "quest": "burnish.claims.quest:CLAIM",
}
"""Name to the claim."""

RECIPES = Path(__file__).parent / "recipes"
"""The folder of the recipes that come with burnish, ``<verb>/<name>.toml``."""


@dataclass(frozen=True)
class GoodKind:
    """How goods of one kind get in and out of a run."""

    load: str
    """What makes one from a source that is a string: "module:function"."""
    save: str = ""
    """What writes one: "module:function" of the good and a path; empty for kinds that are not written."""
    place: str = ""
    """Where in the run's folder it is written."""
    extras: tuple[str, ...] = ()
    check: str = ""
    """What refuses a source that cannot be one, without loading it: "module:function" of the source."""
    default: dict[str, str] | None = None
    """Source that the command line takes for a good of this kind and of this name, when none is given."""
    admit: str = ""
    """What refuses a source before it is loaded: "module:function" of the source and the class of the method."""
    many: bool = False
    """Whether its source may be several, one a line: on the command line they are given one after another."""


GOODS: dict[str, GoodKind] = {
    "Path": GoodKind("pathlib:Path"),
    "Logs": GoodKind("burnish.data.logs.several:Logs.of", many=True, check="burnish.data.logs.several:Logs.check"),
    "Scores": GoodKind(
        "burnish.data.scores:read_scores",
        "burnish.data.scores:Scores.save",
        "items.parquet",
        check="burnish.data.named:check_scores",
    ),
    "Table": GoodKind(
        "burnish.data.scores:read_table",
        "burnish.data.scores:Table.save",
        "table.parquet",
        check="burnish.data.named:check_table",
    ),
    "Dataset": GoodKind(
        "burnish.data:read",
        "burnish.data:save",
        "artifact",
        ("models",),
        "burnish.data.named:check_dataset",
        {"calib": "builtin:calibration", "text": "builtin:test"},
    ),
    "LLM": GoodKind("burnish.llm:connect", check="burnish.llm.named:check_llm"),
    "Model": GoodKind(
        "burnish.models.sound:load",
        "burnish.models:save",
        "artifact",
        ("models",),
        "burnish.models.named:check_model",
        admit="burnish.models.admission:admit",
    ),
}
"""The kinds of goods, the quickest to load first."""


@dataclass(frozen=True)
class Entry:
    """One method's line in the catalogue."""

    name: str
    target: str
    """"module:Class"."""
    verb: str
    kind: Kind
    package: str = "burnish"
    fault: str = ""
    """Why it cannot be used; empty when it can, as far as can be seen without importing it."""


def entries(verb: str = "") -> list[Entry]:
    """Every method, of one verb or of all: burnish's own in their order, then those of other packages."""
    own = [Entry(name, target, target.split(".")[1], _kind(name)) for name, target in METHODS.items()]
    taken = {entry.name: entry.target for entry in own}
    found = list(own)
    for entry in _plugins():
        clash = _clash(entry.name, taken)
        if clash and not entry.fault:
            entry = replace(entry, fault=f"the name is taken by {taken[clash]}")
        elif not entry.fault:
            taken[entry.name] = entry.target
        found.append(entry)
    return [entry for entry in found if verb in ("", entry.verb)]


def find(name: str) -> Entry:
    """The entry of a name.

    Raises:
        UnknownName: there is none; offers near ones.
    """
    same = [entry for entry in entries() if entry.name == name]
    if not same:
        raise UnknownName(
            "method", name, {entry.name for entry in entries() if not entry.fault}, "`burnish list` shows all"
        )
    return next((entry for entry in same if not entry.fault), same[0])


def load(name: str) -> type[Method]:
    """Import a method's class.

    Raises:
        UnknownName: there is no such method.
        MissingExtra: its file imports a package that belongs to an extra which is not installed.
        BadInput: it comes from another package and is broken.
    """
    from burnish.core.method import Method

    entry = find(name)
    if entry.fault:
        raise _broken(entry, entry.fault)
    try:
        found = reference(entry.target)
    except ModuleNotFoundError as error:
        absent = (error.name or "").partition(".")[0]
        for extra, modules in EXTRAS.items():
            if absent in modules:
                raise MissingExtra(name, extra, missing(extra) or [absent]) from error
        if entry.package == "burnish":
            raise
        raise _broken(entry, str(error)) from error
    except Exception as error:
        if entry.package == "burnish":
            raise
        raise _broken(entry, f"{type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise _broken(entry, f"{entry.target} is not a burnish Method")
    return found


def claim(name: str) -> Any:
    """A claim by name.

    Raises:
        UnknownName: there is no such claim.
    """
    if name not in CLAIMS:
        raise UnknownName("claim", name, CLAIMS)
    return reference(CLAIMS[name])


def recipes() -> dict[str, Path]:
    """Recipes that come with burnish, by name: that of their method, with a hyphen for a blank."""
    return {path.stem: path for path in sorted(RECIPES.glob("*/*.toml"))}


def recipe(name: str) -> Path:
    """The file of a recipe that comes with burnish.

    Raises:
        UnknownName: there is none of that name.
    """
    known = recipes()
    name = name.replace(" ", "-")
    if name not in known:
        raise UnknownName("recipe", name, known, "`burnish recipe list` shows all")
    return known[name]


def reference(target: str) -> Any:
    """What "module:name" or "module:Class.name" stands for; imports the module."""
    module, _, attributes = target.partition(":")
    found: Any = importlib.import_module(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    return found


def module_of(name: str) -> str:
    """The dotted name of the module that a method's class comes from; nothing is imported.

    Raises:
        UnknownName: there is no such method.
    """
    return find(name).target.partition(":")[0]


def summary(name: str) -> str:
    """The first line of a method's docstring, read from its source; nothing is imported."""
    return summary_of(find(name).target)


def summary_of(target: str) -> str:
    """The first line of the docstring of the class that "module:Class" names; empty when it cannot be seen."""
    module, _, name = target.partition(":")
    try:
        node = _definition(module, name)
    except (OSError, SyntaxError, ValueError):
        return ""
    return (ast.get_docstring(node) or "").partition("\n")[0] if isinstance(node, ast.ClassDef) else ""


# -- other packages ---------------------------------------------------------------------------------------------

_NAME = re.compile(r"[a-z][a-z0-9-]*( [a-z][a-z0-9-]*)?")


@cache
def _plugins() -> tuple[Entry, ...]:
    points = entry_points()
    found = [
        _plugin(point, group.removeprefix("burnish."))
        for group in points.groups
        if group.startswith("burnish.")
        for point in points.select(group=group)
    ]
    return tuple(sorted(set(found), key=lambda entry: (entry.verb, entry.name, entry.package)))


def _plugin(point: EntryPoint, verb: str) -> Entry:
    package = point.dist.name if point.dist is not None else "an unknown package"
    return Entry(point.name, point.value, verb, "plug-in", package, _fault(point, verb))


def _fault(point: EntryPoint, verb: str) -> str:
    """What is wrong with a plug-in, as far as its metadata and its source tell."""
    if verb not in VERBS:
        return f"there is no verb {verb!r}; the verbs are {', '.join(VERBS)}"
    if not _NAME.fullmatch(point.name):
        return "a name is one or two words of small letters, digits and hyphens"
    module, colon, name = point.value.partition(":")
    if not colon or not name:
        return f"{point.value!r} does not have the form module:Class"
    try:
        spec = _spec(module)
        if spec is None:
            return f"the module {module} is not there"
        if (spec.origin or "").endswith(".py") and _definition(module, name) is None:
            return f"the module {module} has no {name}"
    except SyntaxError as error:
        return f"the module {module} is not Python: {error.msg}, line {error.lineno}"
    except (OSError, ValueError) as error:
        return f"the module {module} cannot be read: {error}"
    return ""


def _clash(name: str, taken: Iterable[str]) -> str:
    """The name among `taken` that is `name`, or that would have to be both a command and a group of commands."""
    words = name.split()
    for other in taken:
        theirs = other.split()
        if other == name or (words[0] == theirs[0] and 1 in (len(words), len(theirs))):
            return other
    return ""


def _broken(entry: Entry, why: str) -> BadInput:
    return BadInput(
        f"the method {entry.name!r} of the package {entry.package} cannot be used: {why}",
        f"mend or remove it: pip uninstall {entry.package}" if entry.package != "burnish" else "",
    )


# -- sources, read without importing them -----------------------------------------------------------------------


def _spec(module: str) -> ModuleSpec | None:
    """Where a module is; unlike importlib's own, this imports no parent package."""
    spec: ModuleSpec | None = None
    path = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        found = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next((one for one in found if one is not None), None)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return spec


def _definition(module: str, name: str, depth: int = 4) -> ast.AST | None:
    """The statement that binds `name` in a module, followed through ``from … import``; None when nothing binds it."""
    spec = _spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    opaque: ast.AST | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    opaque = node
                elif (alias.asname or alias.name) == name:
                    return (_definition(_origin(node, spec), alias.name, depth - 1) if depth else None) or node
        elif isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return node
        elif isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            opaque = node
    return opaque


def _origin(node: ast.ImportFrom, spec: ModuleSpec) -> str:
    """The absolute name of the module that a ``from … import`` reads."""
    if not node.level:
        return node.module or ""
    package = spec.name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]
    base = package.split(".")
    return ".".join([*base[: len(base) - node.level + 1], *([node.module] if node.module else [])])


def _kind(name: str) -> Kind:
    return "baseline" if name in BASELINES else "tool" if name in TOOLS else "paper"
