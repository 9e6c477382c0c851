"""What methods share that read logs: the settings that say what of a log is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from burnish.core.shapes import Analysis
from burnish.data.logs import read_log
from burnish.data.scores import Scores


class LogAnalysis(Analysis):
    """Base of methods that read the logs of evaluation tools."""

    repeats: ClassVar[bool] = True  # the file may have changed under the same name

    measure: str = ""
    """The score that is meant, such as "exact_match,strict-match"; needed where a log holds several."""
    cluster: str = ""
    """What groups items that are not independent: a key of their metadata, or a table's column. By default none."""
    columns: tuple[str, ...] = ()
    """For plain tables: which column is what, such as item_id=question,score=correct."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level; the paper's experiments go from .8 to .995."""

    @field_validator("columns")
    @classmethod
    def _are_pairs(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [pair for pair in columns if not all(pair.partition("="))]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: is not of the form ours=theirs")
        return columns

    def read(self, path: Path) -> Scores:
        """The scores of a log, with clusters and columns as they are set."""
        pairs = {pair.partition("=")[0]: pair.partition("=")[2] for pair in self.columns}
        return read_log(path, cluster=self.cluster, columns=pairs)
