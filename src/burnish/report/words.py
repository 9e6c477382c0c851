"""Figures and verdicts as people write them: rounded, with units, with a true minus sign."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from burnish.core.claim import Evidence, Finding

ABSENT = "–"
"""Stands where there is no value."""

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Measure:
    """How a measured column is called, and which way is good."""

    title: str
    meaning: str
    better: Literal["low", "high"]


MEASURES: dict[str, Measure] = {
    "perplexity": Measure("perplexity", "exp of the mean negative log-likelihood of a token", "low"),
    "kl": Measure("KL", "mean divergence from the original's next-token distribution, in nats", "low"),
    "top1": Measure("top-1 agreement", "share of tokens on which the most likely next token is the original's", "high"),
    "nll": Measure("nats a token", "mean negative log-likelihood of a token", "low"),
    "excess_nll": Measure("added nats a token", "nats a token above the original's", "low"),
    "accuracy": Measure("accuracy", "share of items that are right", "high"),
}
"""Measures that several methods share; others are called by their column's name."""

COUNTS: dict[str, str] = {
    "layers_with_notes": (
        "linear maps of which the method noted something unusual, such as fewer calibration tokens than inputs; the "
        "report lists the notes under Error by layer"
    ),
}
"""Other figures whose name does not say what they are."""

ALIASES = {"ppl": "perplexity", "kl divergence": "kl", "top-1 agreement": "top1"}
"""Other names of measures."""


def canonical(measure: str) -> str:
    """A measure's one name."""
    return ALIASES.get(measure.casefold(), measure)


def title_of(measure: str) -> str:
    """A measure's name for people."""
    known = MEASURES.get(canonical(measure))
    return known.title if known else measure.replace("_", " ")


def meaning_of(measure: str) -> str:
    """What a measure is, and which way is good; empty for those that are not known here."""
    known = MEASURES.get(canonical(measure))
    if known is None:
        return COUNTS.get(measure, "")
    return f"{known.meaning}; {'lower' if known.better == 'low' else 'higher'} is better"


def folded(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics for people: bounds join their estimate, and measures that several methods share come first.

    ``{"kl": 0.5, "kl_low": 0.4, "kl_high": 0.6}`` becomes ``{"kl": {"estimate": 0.5, "low": 0.4, "high": 0.6}}``. A
    number at the end of a name, as in "kl_low_2", says that an earlier step of a recipe has a metric of that name.
    """
    found: dict[str, Any] = {}
    bounds: set[str] = set()
    for name, value in metrics.items():
        stem, underscore, number = name.rpartition("_")
        base, end = (stem, f"_{number}") if underscore and number.isdecimal() else (name, "")
        ends = [f"{base}_{side}{end}" for side in ("low", "high")]
        if _counts(value) and all(_counts(metrics.get(bound)) for bound in ends):
            found[name] = {"estimate": value, "low": metrics[ends[0]], "high": metrics[ends[1]]}
            bounds |= set(ends)
        else:
            found[name] = value
    order = list(MEASURES)
    names = [name for name in found if name not in bounds]
    names.sort(key=lambda name: order.index(known) if (known := canonical(name)) in order else len(order))
    return {name: found[name] for name in names}


def _counts(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: Any, digits: int = 3) -> str:
    """A number with about `digits` significant digits and no fewer digits than its whole part has."""
    if value is None or isinstance(value, bool):
        return ABSENT if value is None else "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    value = float(value)
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if exponent >= 9 or exponent < -4:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa}×10{str(int(power)).translate(_SUPERSCRIPT)}".replace("-", "−")
    return fixed(value, max(0, digits - 1 - exponent))


def as_given(value: float | None) -> str:
    """A number that somebody else rounded: every digit of it."""
    return ABSENT if value is None else f"{value:,.10g}".replace("-", "−")


def fixed(value: float, decimals: int) -> str:
    """A number with so many decimals, thousands apart; never a negative zero."""
    text = f"{value:,.{decimals}f}"
    if text.startswith("-") and not text.strip("-0.,"):
        text = text[1:]
    return text.replace("-", "−")


def interval(estimate: float, low: float, high: float) -> tuple[str, str]:
    """An estimate and its interval, "−0.080" and "[−0.098, −0.061]": as many decimals as the interval's width bears."""
    ends = [estimate, low, high]
    width = high - low
    if not all(map(math.isfinite, ends)) or not 1e-6 < width < 1e6 or max(map(abs, ends)) >= 1e9:
        return number(estimate), f"[{number(low)},\N{NO-BREAK SPACE}{number(high)}]"
    decimals = min(8, max(0, 1 - math.floor(math.log10(width))))
    return fixed(estimate, decimals), f"[{fixed(low, decimals)},\N{NO-BREAK SPACE}{fixed(high, decimals)}]"


def gathered(pairs: Iterable[tuple[str, str]], most: int = 2) -> list[str]:
    """Lines that say what each remark is about: what is said of many is said once.

    Args:
        pairs: Labels, and what is said of each; where nothing is, it is left out.
        most: Labels that are named; of more their number is given.
    """
    found: dict[str, list[str]] = {}
    for label, remark in pairs:
        if remark:
            found.setdefault(remark, []).append(label)
    return [
        f"{', '.join(labels) if len(labels) <= most else f'{len(labels)} of them'}: {remark}"
        for remark, labels in found.items()
    ]


def duration(seconds: float) -> str:
    """A time span: "0.4 s", "41 s", "5.6 min", "2.4 h"."""
    if seconds < 60:
        return f"{number(float(seconds), 2)} s"
    if seconds < 3600:
        return f"{number(seconds / 60, 2 if seconds < 594 else 3)} min"
    return f"{number(seconds / 3600, 3)} h"


def size(count: float) -> str:
    """An amount of bytes: "538 MB" (a MB is 10⁶ bytes)."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{number(count / scale)} {unit}"
    return f"{number(float(count))} bytes"


def plural(count: int, one: str, many: str = "") -> str:
    """A count with its noun: "1 item", "2 items"."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def cell_name(cell: Mapping[str, Any]) -> str:
    """A cell of an experiment on one line: "whole · 3 bits · wikitext2 · seed 0"."""
    shown = []
    for key, value in cell.items():
        if key == "bits":
            shown.append(f"{value}\N{NO-BREAK SPACE}bits")
        else:
            shown.append(value if isinstance(value, str) else f"{key}\N{NO-BREAK SPACE}{value}")
    return "\N{NO-BREAK SPACE}· ".join(shown)


def plain(value: Any) -> str:
    """A setting or a fact as text."""
    if isinstance(value, float):
        return number(value, 4)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return number(value) if value is None or isinstance(value, bool) else str(value)


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return found


def command_line(command: str | Sequence[str]) -> str:
    """A command as it is typed: the program by its name, without the folder that it was found in."""
    if isinstance(command, str):
        return command
    if not command:
        return ""
    program = PurePath(command[0])
    typed = [program.name]
    if program.name == "__main__.py":
        typed = ["burnish"] if "burnish" in program.parts else ["python", "-m", program.parent.name]
    elif program.suffix == ".py":
        typed = ["python", command[0]]
    return shlex.join([*typed, *command[1:]])


# -- claims -----------------------------------------------------------------------------------------------------


def found(finding: Finding) -> str:
    """One finding as a sentence: its text, what both sides measured, estimate, interval and verdict."""
    estimate, ends = interval(finding.estimate, finding.low, finding.high)
    sides = ""
    if len(finding.sides) == 2:
        ours, theirs = (number(value) for value in finding.sides.values())
        what = "added " if finding.statistic == "excess_ratio" else ""
        sides = f"{what}{compared(finding.measure)} {ours} against {theirs}, "
    kind = "difference" if finding.statistic == "difference" else "ratio" if finding.statistic else ""
    named = f"{kind} " if sides else ""
    return f"{finding.text.rstrip('. ')}: {sides}{named}{estimate}\N{NO-BREAK SPACE}{ends}: {finding.verdict}."


def compared(measure: str) -> str:
    """What a measure is called where two arms are compared by it: nats a token are the log of perplexity."""
    return "log-perplexity" if measure == "nll" else title_of(measure)


def quantity(finding: Finding) -> str:
    """What the estimate of a finding is: "difference of KL", "ratio of added log-perplexity"."""
    kinds = {"difference": "difference of", "ratio": "ratio of", "excess_ratio": "ratio of added"}
    kind = kinds.get(finding.statistic, "")
    return f"{kind} {compared(finding.measure)}" if kind and finding.measure else ""


def deciding(evidence: Evidence) -> Finding | None:
    """The finding that settles the verdict: the first of that verdict, else the first of all."""
    same = [finding for finding in evidence.findings if finding.verdict == evidence.verdict]
    return next(iter(same or evidence.findings), None)


def verdict_sentence(evidence: Evidence) -> str:
    """The verdict on a claim in words, and why."""
    count = len(evidence.findings)
    counted = {v: sum(finding.verdict == v for finding in evidence.findings) for v in ("does not hold", "undecided")}
    of = f" for {evidence.model}" if evidence.model else ""
    if not count:
        return f"Undecided{of}: no criterion was measured."
    if evidence.verdict == "holds":
        met = "its one criterion is met" if count == 1 else f"all {count} criteria are met"
        return f"Holds{of}: {met}."
    if evidence.verdict == "does not hold":
        wrong = counted["does not hold"]
        return (
            f"Does not hold{of}: {wrong} of {plural(count, 'criterion', 'criteria')} "
            f"{'lies' if wrong == 1 else 'lie'} on the wrong side of the margin."
        )
    open_ = counted["undecided"]
    return (
        f"Undecided{of}: the interval of {open_} of {plural(count, 'criterion', 'criteria')} "
        f"{'reaches' if open_ == 1 else 'reach'} across the margin; more items could settle it."
    )
