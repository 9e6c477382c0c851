"""Language models by one name, wherever they run: in this process, behind a server, or recorded in a file.

`connect` gives an `LLM`. Every call is written to the run's folder, so that a run that is started again pays for
nothing twice, and a `Budget` stops it in time. Importing this package imports neither torch nor openai.
"""

from burnish.engine import Sampling
from burnish.llm.budget import Budget, BudgetReached, Price, read_prices
from burnish.llm.client import LLM, Message, Reply, Usage, connect
from burnish.llm.replay import record

__all__ = [
    "LLM",
    "Budget",
    "BudgetReached",
    "Message",
    "Price",
    "Reply",
    "Sampling",
    "Usage",
    "connect",
    "read_prices",
    "record",
]
