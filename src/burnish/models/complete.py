"""Refusing a checkpoint that lacks weights: transformers makes them up, and says so only in its log.

A layer of random numbers measures as badly as the worst quantizer, so such a model must not be loaded in silence. The
log is watched while a model is loaded, and the report of missing weights becomes an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from burnish.core.errors import BadInput

if TYPE_CHECKING:
    from burnish.models.model import Model

MISSING = re.compile(r"^(\S+)\s*\|\s*(?:\x1b\[\d+m)*(MISSING|MISMATCH)", re.MULTILINE)
"""A line of the report: the weight's name, and what is wrong with it."""
MOST = 5
"""Names that are listed."""


class _Watch(logging.Handler):
    """Raises at the report, out of the call that loads."""

    def emit(self, record: logging.LogRecord) -> None:
        """Look for weights that were made up."""
        names = [name for name, _ in MISSING.findall(record.getMessage())]
        if names:
            more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
            raise BadInput(
                f"the checkpoint lacks weights, or holds them in another shape: {', '.join(names[:MOST])}{more}",
                "give a whole checkpoint of this model: missing weights would be random numbers",
            )


@contextmanager
def complete() -> Iterator[None]:
    """While this is entered, loading a model raises BadInput if its checkpoint lacks weights."""
    watch, logger = _Watch(logging.WARNING), logging.getLogger("transformers")
    logger.addHandler(watch)
    try:
        yield
    finally:
        logger.removeHandler(watch)


def load(name: str, **options: Any) -> Model:
    """`burnish.models.loading.load`, for whole checkpoints only.

    Raises:
        BadInput: as `burnish.models.loading.load`; the checkpoint lacks weights.
    """
    from burnish.models.loading import load as inner

    with complete():
        return inner(name, **options)
