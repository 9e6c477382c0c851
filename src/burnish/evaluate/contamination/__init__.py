"""Contamination of translation tests: `inject` makes it on purpose, `measure` says what it is worth, `scan`, `score` and
`probe` look for it."""

from __future__ import annotations

from burnish.core.method import Paper

PAPER = Paper(
    title="Overestimation in LLM Evaluation: A Controlled Large-Scale Study on Data Contamination's Impact on "
    "Machine Translation",
    authors="Kocyigit, Briakou, Deutsch, Luo, Cherry, Freitag",
    year=2025,
    venue="ICML 2025",
    arxiv="2501.18771",
)
