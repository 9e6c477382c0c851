"""Agent-as-a-Judge on DevAI: agents that develop software are judged requirement by requirement, by an agent.

## How it works

A task is a query with requirements R that build on one another. A judge says of each r in R whether what the developing
agent left behind satisfies it. From the verdicts follow the share satisfied (I, independent) and the share satisfied
together with its prerequisites (D, dependent). A judge is as good as its *alignment*: the share of requirements on which
it says what people, in consensus, say.

* `devai report` derives all of that from published verdicts, with intervals over tasks.
* `devai judge` is the judge: it gathers evidence about a workspace with the paper's modules and asks a model.
* `devai precheck` is the baseline that needs no model: what a requirement names exists, is not empty and parses.

## References

Zhuge et al., Agent-as-a-Judge: Evaluate Agents with Agents, ICML 2025, arXiv 2410.10934.
"""

from burnish.core.method import Paper

PAPER = Paper(
    title="Agent-as-a-Judge: Evaluate Agents with Agents",
    authors="Zhuge, Zhao, Ashley, Wang, Khizbullin, Xiong, Liu, Chang, Krishnamoorthi, Tian, Shi, Chandra, Schmidhuber",
    year=2025,
    venue="ICML 2025",
    arxiv="2410.10934",
)
