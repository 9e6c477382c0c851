"""What errors weigh: severity, category and subcategory to a number; the most specific rule wins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from burnish.core.errors import BadInput
from burnish.data.mqm import NO_ERROR, Error, Rating, Sheet

GOOGLE = "Major:5 Minor:1 Neutral:0 Major/Non-translation!:25 Major/Non-translation:25 Minor/Fluency/Punctuation:0.1"
"""The weights of Freitag et al. 2021 as mt-metrics-eval has them; the category is spelled both ways in the files."""


@dataclass(frozen=True)
class Weights:
    """Rules ``severity[/category[/subcategory]]`` to weights, found whatever the case of the letters."""

    rules: Mapping[str, float]

    @classmethod
    def parse(cls, text: str = GOOGLE) -> Weights:
        """From rules like ``Major:5 Minor/Fluency/Punctuation:0.1``; blanks in categories are written ``_``.

        Raises:
            BadInput: listing every rule that is none.
        """
        rules, faults = {}, []
        for part in text.split():
            rule, colon, number = part.rpartition(":")
            try:
                weight = float(number)
            except ValueError:
                weight = -1.0
            if not colon or not rule or not 0 <= weight < float("inf"):
                faults.append(f"{part!r}: not severity[/category[/subcategory]]:weight")
            rules[rule.replace("_", " ").casefold()] = weight
        if faults or not rules:
            raise BadInput.of("these weights cannot be used", faults or ["there are none"], f"e.g. {GOOGLE}")
        return cls(rules)

    def of(self, severity: str, category: str) -> float | None:
        """The weight of an error; None when no rule speaks of its severity."""
        parts = [severity.casefold(), *category.casefold().split("/")]
        if parts[0] == NO_ERROR:
            return 0.0
        for length in range(len(parts), 0, -1):
            found = self.rules.get("/".join(parts[:length]))
            if found is not None:
                return found
        return None

    def score(self, errors: Iterable[Error]) -> float:
        """The MQM score of one rating: minus the sum of its errors' weights; those without a rule weigh nothing."""
        # Not -sum: a rating without errors scores 0, not -0.
        return 0.0 - sum(self.of(error.severity, error.category) or 0.0 for error in errors)

    def heavier(self, severity: str) -> float:
        """A number to order severities by: their weight without a category."""
        return self.of(severity, "") or 0.0

    def unknown(self, sheet: Sheet, drop: Sequence[str] = ()) -> dict[str, int]:
        """Severities that no rule speaks of, with the number of their rows; those in `drop` are left out anyway."""
        gone = {severity.casefold() for severity in drop}
        return {
            severity: count
            for severity, count in sheet.severities().items()
            if severity.casefold() not in gone and self.of(severity, "") is None
        }


def segment_scores(ratings: Iterable[Rating], weights: Weights) -> dict[tuple[str, str], float]:
    """The MQM score of each (system, segment): the mean over its raters."""
    found: dict[tuple[str, str], list[float]] = {}
    for rating in ratings:
        found.setdefault((rating.system, rating.segment), []).append(weights.score(rating.errors))
    return {key: sum(scores) / len(scores) for key, scores in found.items()}


def system_scores(segments: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Each system's mean over its segments."""
    found: dict[str, list[float]] = {}
    for (system, _), score in segments.items():
        found.setdefault(system, []).append(score)
    return {system: sum(scores) / len(scores) for system, scores in found.items()}
