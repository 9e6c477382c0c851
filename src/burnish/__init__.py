"""burnish: does this paper's idea help my model, on my machine?

``import burnish`` is quick: what it offers is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burnish.core.recipe import Recipe as Recipe
    from burnish.core.run import Run as Run

_OFFERED = {
    "load": "burnish.models.sound:load",
    "Recipe": "burnish.core.recipe:Recipe",
    "Run": "burnish.core.run:Run",
    "check_method": "burnish.testing:check_method",
}
"""Besides these: every method's class, by the class's name."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("burnish")
    if name.startswith("_"):
        raise AttributeError(f"module 'burnish' has no attribute {name!r}")
    if name in _OFFERED:
        found = _catalogue().reference(_OFFERED[name])
    elif name in (methods := _methods()):
        found = _catalogue().load(methods[name])
    else:
        raise AttributeError(f"module 'burnish' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if not name.startswith("_")), *_OFFERED, *_methods(), "__version__"])


def _methods() -> dict[str, str]:
    """Class name to the method's name, of burnish's own methods."""
    return {target.partition(":")[2]: name for name, target in _catalogue().METHODS.items()}


def _catalogue() -> Any:
    # Not `from burnish import catalogue`: that asks `__getattr__` above for it first.
    return importlib.import_module("burnish.catalogue")
