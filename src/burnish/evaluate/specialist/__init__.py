"""The specialist autorater: error spans of a translation, marked as the raters of this very test set mark them.

An autorater is shown how raters marked other systems' translations of the source that it is to judge.

* `specialist copy` does without a model: it marks again what raters marked. Every model has to beat it.
* `specialist judge` asks a model, with the examples and with controls: other sources, fixed ones, none.
* `specialist rank` says whether the scores of either rank systems and translations as humans do.
"""

from burnish.core.method import Paper

PAPER = Paper(
    title="From Jack of All Trades to Master of One: Specializing LLM-based Autoraters to a Test Set",
    authors="Finkelstein, Deutsch, Riley, Juraska, Kovacs, Freitag",
    year=2025,
    venue="ICML 2025",
    arxiv="2411.15387",
)
