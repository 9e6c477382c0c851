"""Divergence: how far a changed model's predictions are from the original's, window by window.

## How it works

The text is cut into windows of `length` tokens, `stride` apart. In each window three things are averaged over the
predicted tokens: the negative log-likelihood (in nats; perplexity is exp of its mean), the Kullback-Leibler divergence
KL(p ‖ q) of the model's next-token distribution q from the original's p over the whole vocabulary, and how often both
prefer the same token (top-1 agreement). Two models on the same windows are paired data; intervals are Student's t over
windows.

## Differences

* Windows do not overlap unless `stride` says so; then only the tokens that earlier windows did not predict count.
* A tokenizer that begins every text with a BOS token (Gemma) begins every window with it; it is context, never predicted.
* Logits are formed for a few hundred tokens at a time, so a vocabulary of 150,000 fits anywhere. The original's last
  hidden states are kept instead of its logits, and the head is applied again.

## When not to use it

Perplexities depend on text, tokenizer and window length: compare them only within one table. KL needs two models with
one vocabulary.

## References

KL and top-1 agreement as the measure of quantization damage: llama.cpp's perplexity tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from burnish.core.errors import BadInput
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.scores import Scores
from burnish.models.model import Model
from burnish.stats.interval import Interval
from burnish.stats.student import student_ratio

if TYPE_CHECKING:
    from datasets import Dataset

CHUNK_LOGITS = 4_000_000
"""Logits that are formed at once."""


def _windows(value: int) -> int:
    if value < 1 and value != -1:
        raise ValueError("samples is 1 or more, or -1 for all of the text")
    return value


Windows = Annotated[int, AfterValidator(_windows)]
"""A number of windows: 1 or more, or -1 for all."""


class Divergence(Evaluation):
    """Perplexity, and KL divergence and top-1 agreement with the original model, with paired intervals."""

    needs = ("models",)

    samples: Windows = 32
    """Windows of text; -1 for all of it."""
    length: Annotated[int, Field(ge=2)] = 512
    """Tokens in a window."""
    stride: Annotated[int, Field(ge=0)] = 0
    """Tokens between the starts of two windows; 0 for no overlap. A smaller stride gives each token more context."""
    join: Literal["eos", "lines"] = "eos"
    """How documents become one stream: with an end-of-text token between them; or line by line with a blank line
    between, the protocol of the perplexities of WikiText-2 that papers print (with length 2048 and samples -1)."""
    batch: Annotated[int, Field(ge=1)] = 8
    """Windows in one forward pass; the figures do not depend on it."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""

    def __call__(self, model: Model, text: Dataset, against: Model | None = None, run: Run | None = None) -> Scores:
        """Measure a model on text.

        Args:
            model: The model.
            text: Documents.
            against: The original; without it only perplexity is measured.
            run: Where figures go.

        Returns:
            A row a window: item_id, model, tokens, nll; with `against` also base_nll, kl, top1.

        Raises:
            BadInput: too little text, or two models with different vocabularies.
        """
        run = ensure(run)
        tokens, fresh = self._windows(model, text)
        if against is not None and against.config.vocab_size != model.config.vocab_size:
            raise BadInput(
                f"{model.name} has {model.config.vocab_size} tokens and {against.name} {against.config.vocab_size}",
                "KL compares models with one vocabulary",
            )
        hidden = None if against is None else last_hidden(against, tokens, self.batch)
        rows = list(self._measure(model, tokens, fresh, against, hidden, run))
        run.items(rows)
        run.metric(**self._headline(rows))
        return Scores.of(rows, protocol=self.protocol(), lineage=model.lineage.lines())

    def protocol(self) -> str:
        """How the text is cut, in a line that should stand beside every figure."""
        overlap = f", stride {self.stride}" if self.stride else ""
        joined = "documents joined by end-of-text" if self.join == "eos" else "lines joined by blank lines"
        return f"windows of {self.length} tokens{overlap}, {joined}, first token of a window not scored"

    def _windows(self, model: Model, text: Dataset) -> tuple[Tensor, Tensor]:
        """Windows, (samples, length), and for each how many of its last tokens are scored."""
        from burnish.data.windows import leading_tokens, windows

        if not self.stride or self.stride >= self.length:
            cut = windows(model.tokenizer, text, self.samples, self.length, join=self.join)
            return cut, torch.full((len(cut),), self.length - 1)
        first = torch.tensor(leading_tokens(model.tokenizer), dtype=torch.long)
        whole = windows(model.tokenizer, text, -1, self.stride, bos=False, join=self.join).flatten()
        body = self.length - len(first)
        count = max(0, (len(whole) - body) // self.stride + 1)
        if count < max(self.samples, 1):
            raise BadInput(
                f"the text gives {count} windows, and {self.samples} are asked for", f"--samples {max(count, 1)}"
            )
        count = count if self.samples == -1 else self.samples
        tokens = torch.cat([first.expand(count, -1), whole.unfold(0, body, self.stride)[:count]], 1)
        fresh = torch.full((count,), self.stride)
        fresh[0] = self.length - 1
        return tokens, fresh

    @torch.no_grad()
    def _measure(
        self, model: Model, tokens: Tensor, fresh: Tensor, against: Model | None, hidden: list[Tensor] | None, run: Run
    ) -> Iterator[dict[str, Any]]:
        digits = len(str(len(tokens)))
        done = 0
        for number, batch in enumerate(run.track(tokens.split(self.batch), "divergence", unit="batches")):
            states = net_hidden(model, batch)
            base = None if hidden is None else hidden[number]
            for row, window in enumerate(batch):
                keep = int(fresh[done])
                figures = compare_window(
                    model, states[row, -keep - 1 : -1], window[-keep:], against, None if base is None else base[row]
                )
                yield {"item_id": f"{done:0{digits}d}", "model": model.name, "tokens": keep, **figures}
                done += 1

    def _headline(self, rows: list[dict[str, Any]]) -> dict[str, float]:
        weights = np.array([row["tokens"] for row in rows], dtype=float)
        found: dict[str, float] = {"windows": len(rows), "tokens": int(weights.sum())}
        for measure in ("nll", "kl", "top1"):
            if measure not in rows[0]:
                continue
            values = np.array([row[measure] for row in rows])
            if len(rows) < 2:
                found[measure] = float(values[0])
                continue
            interval = self._mean(values, weights)
            found |= {measure: interval.estimate, f"{measure}_low": interval.low, f"{measure}_high": interval.high}
        for end in ("", "_low", "_high"):
            if f"nll{end}" in found:
                found[f"ppl{end}"] = float(np.exp(found[f"nll{end}"]))
        if "base_nll" in rows[0] and len(rows) > 1:
            excess = self._mean(np.array([row["nll"] - row["base_nll"] for row in rows]), weights)
            found |= {"excess_nll": excess.estimate, "excess_nll_low": excess.low, "excess_nll_high": excess.high}
        return found

    def _mean(self, values: np.ndarray, weights: np.ndarray) -> Interval:
        """The mean over tokens: with a stride, windows score different numbers of them."""
        return student_ratio(values * weights, weights, level=self.level)


@torch.no_grad()
def net_hidden(model: Model, tokens: Tensor) -> Tensor:
    """What enters the head: (windows, length, hidden), after the final norm."""
    out = model.net.base_model(input_ids=tokens.to(model.device), use_cache=False)
    return out.last_hidden_state


_KEPT: WeakKeyDictionary[Any, tuple[Tensor, int, list[Tensor]]] = WeakKeyDictionary()
"""Model to its last windows, batch size and hidden states: the arms of a comparison share one original."""


def last_hidden(model: Model, tokens: Tensor, batch: int) -> list[Tensor]:
    """`net_hidden` of all windows, batch after batch; kept until other windows are asked for."""
    kept = _KEPT.get(model.net)
    if kept is None or kept[1] != batch or not torch.equal(kept[0], tokens):
        kept = (tokens, batch, [net_hidden(model, part) for part in tokens.split(batch)])
        _KEPT[model.net] = kept
    return kept[2]


@torch.no_grad()
def log_probabilities(model: Model, hidden: Tensor) -> Tensor:
    """Next-token log-probabilities, (tokens, vocabulary) float32, of states that enter the head."""
    logits = model.net.get_output_embeddings()(hidden).float()
    cap = getattr(model.config, "final_logit_softcapping", None)
    if cap:
        logits = torch.tanh(logits / cap) * cap
    return logits.log_softmax(-1)


@torch.no_grad()
def compare_window(
    model: Model, states: Tensor, targets: Tensor, against: Model | None, base: Tensor | None
) -> dict[str, float]:
    """Mean figures over one window.

    Args:
        model: The model.
        states: What enters its head at each position that predicts a scored token, (scored, hidden).
        targets: The scored tokens, (scored,).
        against: The original.
        base: What enters the original's head over the whole window, (length, hidden).
    """
    targets = targets.to(states.device)
    sums = {"nll": 0.0, "base_nll": 0.0, "kl": 0.0, "top1": 0.0}
    step = max(1, CHUNK_LOGITS // int(model.config.vocab_size))
    before = None if base is None else base[-len(states) - 1 : -1]
    for begin in range(0, len(states), step):
        part = slice(begin, begin + step)
        ours = log_probabilities(model, states[part])
        target = targets[part, None]
        sums["nll"] -= float(ours.gather(1, target).double().sum())
        if against is None or before is None:
            continue
        theirs = log_probabilities(against, before[part])
        sums["base_nll"] -= float(theirs.gather(1, target).double().sum())
        sums["top1"] += int((ours.argmax(1) == theirs.argmax(1)).sum())
        sums["kl"] += float((theirs.exp() * (theirs - ours)).sum(1).double().sum())
    wanted = sums if against is not None else {"nll": sums["nll"]}
    return {name: value / len(states) for name, value in wanted.items()}
