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

from burnish.core.errors import BadInput, BurnishError

if TYPE_CHECKING:
    from burnish.models.model import Model

FAULTS = (
    re.compile(r"^([^|\n]*\S)\s*\|\s*(?:\x1b\[\d+m)*(?:MISSING|MISMATCH)", re.MULTILINE),
    # Weights of layers that the configuration does not have; other extra tensors (old rotary caches) do no harm.
    re.compile(r"^([^|\n]*layers\.[^|\n]*\.weight)\s*\|\s*(?:\x1b\[\d+m)*UNEXPECTED", re.MULTILINE),
)
"""Lines of the report: the weight's name, and what is wrong with it."""
MOST = 5
"""Names that are listed."""


class _Watch(logging.Handler):
    """Raises at the report, out of the call that loads."""

    def emit(self, record: logging.LogRecord) -> None:
        """Look for weights that were made up."""
        names = [name for fault in FAULTS for name in fault.findall(record.getMessage())]
        if names:
            more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
            raise BadInput(
                f"configuration and weights do not fit: {', '.join(names[:MOST])}{more} missing, of another shape or left over",
                "give a whole checkpoint with its own config.json: missing weights would be random numbers",
            )


@contextmanager
def complete() -> Iterator[None]:
    """While this is entered, loading a model whose files are not whole raises BadInput, and no code of theirs is run."""
    from transformers import dynamic_module_utils

    watch, logger = _Watch(logging.WARNING), logging.getLogger("transformers")
    logger.addHandler(watch)
    # With no time to answer, transformers refuses a model's own code instead of asking whether to run it.
    before, dynamic_module_utils.TIME_OUT_REMOTE_CODE = dynamic_module_utils.TIME_OUT_REMOTE_CODE, 0
    try:
        yield
    finally:
        logger.removeHandler(watch)
        dynamic_module_utils.TIME_OUT_REMOTE_CODE = before


def load(name: str, **options: Any) -> Model:
    """`burnish.models.loading.load`, for whole checkpoints only.

    Raises:
        BadInput: as `burnish.models.loading.load`; the checkpoint lacks weights.
    """
    from burnish.models.loading import load as inner

    with complete():
        try:
            return inner(name, **options)
        except (BurnishError, OSError, MemoryError):
            raise
        except Exception as error:  # whatever a configuration or a file that lies brings a reader to
            reason = " ".join(str(error).split())[:200] or "no reason is given"
            raise BadInput(
                f"{name} cannot be loaded: {type(error).__name__}: {reason}", "check that its files are whole"
            ) from error
