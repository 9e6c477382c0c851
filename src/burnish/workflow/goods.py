"""What steps are called on: finding what is wrong with it before anything is loaded, and loading it once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish import catalogue
from burnish.core.errors import BadInput, BurnishError, UnknownName
from burnish.core.extras import missing, require
from burnish.core.method import Method
from burnish.core.recipe import Planned
from burnish.core.run import Run
from burnish.workflow.results import PLAIN

LARGEST = 2**63
"""Whole numbers from here on do not fit into 64 bits."""


@dataclass(frozen=True)
class Place:
    """How models are loaded; see `burnish.models.load`."""

    device: str = "auto"
    dtype: str = "auto"
    notify: Callable[[str], None] | None = None
    """Is told, in a line, what is fetched and under which licence."""

    def options(self) -> dict[str, Any]:
        """Keywords for the loader: those that differ from its defaults."""
        return {name: value for name, value in vars(self).items() if value not in ("auto", None)}


ANYWHERE = Place()
"""The device and dtype that suit the machine."""


def check(steps: Sequence[Planned], format: str = PLAIN) -> None:
    """Find everything that is wrong with the steps and can be found without loading anything.

    Raises:
        MissingExtra: a method, or a kind of good, needs an extra that is not installed.
        BadInput: goods that are missing, unknown, of a kind that cannot be named by a string, or not there.
        BurnishError: the model that the last step gives cannot be saved in `format`.
    """
    for step in steps:
        cls = type(step.method)
        kinds = [*(good.kind for good in cls.goods() if good.name in step.goods), cls.gives()]
        brought = [extra for kind in kinds if kind in catalogue.GOODS for extra in catalogue.GOODS[kind].extras]
        require(step.use, *dict.fromkeys([*cls.needs, *brought]))
    faults = []
    for step in steps:
        cls = type(step.method)
        faults += goods_faults(step.use, cls, step.goods)
        lacking = [good for good in cls.goods() if good.required and good.name not in step.goods]
        faults += [f"{step.use} needs {good.name} ({good.kind})" for good in lacking]
        large = [name for name, value in step.method if isinstance(value, int) and not -LARGEST <= value < LARGEST]
        faults += [f"{name}: is too large; generators and files take 64 bits, so less than {LARGEST}" for name in large]
    last = steps[-1].method
    if faults:
        faults += format_faults(last, format)
        raise BadInput.of("this cannot be run", faults, f"`burnish show {steps[0].use}` says what it takes")
    if type(last).gives() == "Model":
        catalogue.reference("burnish.models:check_export")(last, format)


def format_faults(method: Method, format: str) -> list[str]:
    """A line if what the method gives cannot be saved in a format."""
    return _faults_of("burnish.models:check_export", method, format)


def packed_faults(method: Method) -> list[str]:
    """A line if what the method gives cannot run on its codes."""
    return _faults_of("burnish.models.packed:check", method)


def _faults_of(check: str, method: Method, *more: str) -> list[str]:
    if type(method).gives() == "Model":
        try:
            catalogue.reference(check)(method, *more)
        except BurnishError as error:
            return [f"{error.problem}; {error.fix}" if error.fix else error.problem]
    return []


def goods_faults(use: str, cls: type[Method], goods: Mapping[str, str | int]) -> list[str]:
    """A line for each given good that is unknown, or of which it is seen without loading it that it cannot be loaded."""
    known = {good.name: good for good in cls.goods()}
    lines = []
    for name in sorted(goods.keys() - known.keys()):
        error = UnknownName(f"good of {use}", name, known)
        lines.append(f"{error.problem}; {error.fix}")
    for name, good in known.items():
        source = goods.get(name)
        if not isinstance(source, str):
            continue
        if good.kind not in catalogue.GOODS:
            lines.append(f"{name}: {use} takes a {good.kind}, which only Python can give")
        elif good.kind == "Path" and not Path(source).exists():
            lines.append(f"{name}: there is nothing at {source}")
        elif fault := _source_fault(good.kind, source):
            lines.append(f"{name}: {fault}")
    return lines


def _source_fault(kind: str, source: str) -> str:
    """What is seen to be wrong with a source without loading it; empty when nothing is."""
    how = catalogue.GOODS[kind]
    if how.check and not any(map(missing, how.extras)):
        try:
            catalogue.reference(how.check)(source)
        except BurnishError as error:
            problem = " ".join(error.problem.split())
            return f"{problem}; {error.fix}" if error.fix else problem
    return ""


class Shelf:
    """Loads each source once."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._loaded: dict[tuple[str, str], Any] = {}

    def take(self, kind: str, source: str, method: type[Method] = Method) -> Any:
        """The good of that kind and source, for a method."""
        if (kind, source) not in self._loaded:
            options = self.place.options() if kind == "Model" else {}
            if admit := catalogue.GOODS[kind].admit:
                catalogue.reference(admit)(source, method, **options)
            self._loaded[kind, source] = catalogue.reference(catalogue.GOODS[kind].load)(source, **options)
        return self._loaded[kind, source]


def call(step: Planned, earlier: Mapping[int, Any], shelf: Shelf, run: Run) -> Any:
    """Load the goods of one step, the quickest first, and call its method."""
    kinds = {good.name: good.kind for good in type(step.method).goods()}
    order = list(catalogue.GOODS)
    goods: dict[str, Any] = {}
    for name, source in sorted(step.goods.items(), key=lambda pair: order.index(kinds[pair[0]])):
        goods[name] = earlier[source] if isinstance(source, int) else shelf.take(kinds[name], source, type(step.method))
    act: Any = step.method
    return act(**goods, run=run)
