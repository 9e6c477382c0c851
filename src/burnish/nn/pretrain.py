"""Training a language model from nothing, or from a checkpoint, on a stream of tokens (`burnish.nn.stream`).

The schedule warms up and then falls along half a cosine, stays ("constant"), or stays and falls linearly at the end ("wsd":
warm-up, stable, decay). A checkpoint that is taken while the rate is stable can be branched, each branch with a decay of its
own.

Nothing is drawn but the order of rows, so the same start, stream and plan give the same weights on one machine with the
same number of threads, also after an interruption. Whoever makes the model seeds its first weights.

References: Loshchilov & Hutter 2019 (AdamW), Hu et al. 2024 (MiniCPM: warm-up, stable, decay).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from burnish.core.errors import BadInput
from burnish.nn.stream import Stream


class Transform(Protocol):
    """What a method does to a model while it is trained: quantized weights, structured layers, memory sinks …"""

    def attach(self, net: Any) -> None:
        """Change the model before its optimizer is made."""

    def before(self, batch: Stream, step: int) -> None:
        """Called before each step's forward, with its rows."""

    def detach(self, net: Any) -> None:
        """Undo what only training needs."""


@dataclass(frozen=True)
class Plan:
    """How a model is trained."""

    batch: int = 4
    """Rows a step."""
    rate: float = 1e-3
    """Peak learning rate."""
    schedule: Literal["cosine", "wsd", "constant"] = "cosine"
    warmup: float = 0.05
    """Share of the steps in which the rate rises."""
    decay: float = 0.2
    """Share of the steps in which it falls, for "wsd"."""
    floor: float = 0.1
    """What the rate falls to, as a share of the peak."""
    passes: int = 1
    """Times that the stream is read; each later pass has an order of its own."""
    shuffle: bool = False
    """Whether the first pass has one too; otherwise rows come in their order."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    """Of matrices."""
    clip: float = 1.0
    """Largest norm of a gradient."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of products; "auto" is bfloat16 on a GPU, and on a CPU that computes with it."""
    seed: int = 0
    most: int | None = None
    """Steps after which training ends, though the stream holds more."""

    def steps(self, rows: int) -> int:
        """Steps in all for a stream of so many rows."""
        whole = self.passes * math.ceil(rows / self.batch)
        return whole if self.most is None else min(whole, self.most)

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate of one step."""
        rise = math.ceil(self.warmup * steps)
        if step < rise:
            return self.rate * (step + 1) / rise
        if self.schedule == "constant":
            return self.rate
        begin = rise if self.schedule == "cosine" else max(rise, steps - max(1, round(self.decay * steps)))
        gone = max(0.0, (step - begin + 1) / (steps - begin))
        kept = 0.5 * (1 + math.cos(math.pi * gone)) if self.schedule == "cosine" else 1 - gone
        return self.rate * (self.floor + (1 - self.floor) * kept)


@dataclass
class Trained:
    """What training came to."""

    steps: int
    tokens: int
    precision: str
    losses: list[float] = field(default_factory=list)
    """Mean weighted loss of each step that was done now, in nats a token."""


def next_token_loss(net: Any, batch: Stream) -> Tensor:
    """The weighted mean loss of predicting each token from those before it in its document.

    The mask is the whole truth about attention: not for models whose layers look back on a window only.
    """
    mask = batch.mask()
    if getattr(getattr(net, "config", None), "_attn_implementation", "") == "eager":  # it adds the mask
        mask = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, torch.finfo(torch.float32).min)
    out = net(input_ids=batch.ids, attention_mask=mask, position_ids=batch.positions, use_cache=False)
    losses = nn.functional.cross_entropy(
        out.logits[:, :-1].flatten(0, 1).float(), batch.ids[:, 1:].flatten(), reduction="none"
    )
    weights = batch.weights[:, 1:].flatten()
    return (losses * weights).sum() / weights.sum().clamp(min=1e-9)


def window_loss(net: Any, batch: Stream) -> Tensor:
    """The mean loss of predicting the tokens of windows, each of which is one text: the model's own attention."""
    logits = net(input_ids=batch.ids, use_cache=False).logits[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch.ids[:, 1:].flatten())


def pretrain(
    net: Any,
    stream: Stream,
    plan: Plan,
    *,
    start: Path | None = None,
    checkpoint: Path | None = None,
    every: int = 0,
    model_transform: Transform | None = None,
    loss: Callable[[Any, Stream], Tensor] = next_token_loss,
    progress: Callable[[int, int, float], None] | None = None,
) -> Trained:
    """Train a model in place, and leave it in evaluation mode.

    Args:
        net: A plain PreTrainedModel, with attention that takes a mask for each row ("sdpa" or "eager").
        stream: What it reads.
        plan: How.
        start: A checkpoint whose weights and moments it begins with; the schedule begins anew.
        checkpoint: Where its state is written when training ends and, with `every`, each so many steps; one that is
            there is gone on from.
        model_transform: Changes the model before training, and looks on at each step.
        loss: Of the model on a batch; a method may bring its own.
        progress: Told step, steps and loss after each step.

    Raises:
        BadInput: a loss that is no number, or a checkpoint of another model.
    """
    device = next(net.parameters()).device
    if model_transform is not None:
        model_transform.attach(net)
    # Evaluation mode differs in dropout alone, whose draws would make an interrupted training another one.
    net.requires_grad_(True).eval()
    wide = [weight for weight in net.parameters() if weight.ndim > 1]
    narrow = [weight for weight in net.parameters() if weight.ndim <= 1]
    groups = [{"params": wide, "weight_decay": plan.weight_decay}, {"params": narrow, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=plan.rate, betas=plan.betas, fused=True)
    steps, done = plan.steps(len(stream.ids)), 0
    if checkpoint is not None and checkpoint.exists():
        done = _read(checkpoint, net, optimizer)
    elif start is not None:
        _read(start, net, optimizer)
    kind = _precision(plan.precision, device)
    order = _order(plan, len(stream.ids))
    per_pass = math.ceil(len(stream.ids) / plan.batch)
    result = Trained(steps, plan.passes * stream.tokens, precision_of(plan, device))
    for step in range(done, steps):
        number, place = divmod(step, per_pass)
        batch = stream.rows(order[number][place * plan.batch : (place + 1) * plan.batch], device)
        if model_transform is not None:
            model_transform.before(batch, step)
        for group in optimizer.param_groups:
            group["lr"] = plan.rate_at(step, steps)
        with torch.autocast(device.type, dtype=kind or torch.bfloat16, enabled=kind is not None):
            value = loss(net, batch)
        value.backward()
        norm = float(nn.utils.clip_grad_norm_(net.parameters(), plan.clip))
        result.losses.append(value.item())
        for what, figure in (("loss", result.losses[-1]), ("norm of the gradient", norm)):
            if not math.isfinite(figure):
                raise BadInput(f"the {what} is {figure} at step {step + 1}", "take a smaller rate")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if progress is not None:
            progress(step + 1, steps, result.losses[-1])
        if checkpoint is not None and every and (step + 1) % every == 0 and step + 1 < steps:
            _write(checkpoint, net, optimizer, step + 1)
    if checkpoint is not None:
        _write(checkpoint, net, optimizer, steps)
    if model_transform is not None:
        model_transform.detach(net)
    net.requires_grad_(False).eval()
    return result


def _order(plan: Plan, rows: int) -> list[Tensor]:
    """The order of the rows in each pass."""
    draw = torch.Generator().manual_seed(plan.seed % 2**63)
    shuffled = [torch.randperm(rows, generator=draw) for _ in range(plan.passes)]
    return [order if number or plan.shuffle else torch.arange(rows) for number, order in enumerate(shuffled)]


def precision_of(plan: Plan, device: torch.device) -> str:
    """The precision of products that a plan comes to on a device: "float32" or "bfloat16"."""
    return "float32" if _precision(plan.precision, device) is None else "bfloat16"


def _precision(asked: str, device: torch.device) -> torch.dtype | None:
    """bfloat16 where it is asked for, or where it is fast; None for float32."""
    if asked != "auto":
        return torch.bfloat16 if asked == "bfloat16" else None
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else None
    able = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    fast = device.type == "cpu" and any(getattr(torch.cpu, name, lambda: False)() for name in able)
    return torch.bfloat16 if fast else None


def _tensors(net: Any) -> dict[str, Tensor]:
    """Weights and buffers by name, a shared one once."""
    seen: dict[int, str] = {}
    for name, tensor in net.state_dict(keep_vars=True).items():
        seen.setdefault(id(tensor), name)
    return {name: tensor for name, tensor in net.state_dict(keep_vars=True).items() if seen[id(tensor)] == name}


def _write(path: Path, net: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    from safetensors.torch import save_file

    held = {"step": torch.tensor(step)}
    for name, tensor in _tensors(net).items():
        held[f"net/{name}"] = tensor.detach().cpu().contiguous()
        held |= {f"{key}/{name}": value.cpu().contiguous() for key, value in optimizer.state.get(tensor, {}).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(held, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def read_weights(path: Path, net: Any) -> None:
    """Put the weights of a checkpoint into a model.

    Raises:
        BadInput: it is of another model.
    """
    _read(path, net, None)


def _read(path: Path, net: Any, optimizer: torch.optim.Optimizer | None) -> int:
    """Put back what `_write` wrote; gives the steps that were done."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        held, own = load_file(path), _tensors(net)
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path} is a damaged checkpoint: {error}", "delete it, to begin anew") from None
    if {name: held[f"net/{name}"].shape for name in own if f"net/{name}" in held} != {
        n: t.shape for n, t in own.items()
    }:
        raise BadInput(f"{path} is a checkpoint of another model", "choose another folder")
    for name, tensor in own.items():
        with torch.no_grad():
            tensor.copy_(held[f"net/{name}"])
        state = {key: held[f"{key}/{name}"] for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}/{name}" in held}
        if state and optimizer is not None:
            optimizer.state[tensor] = {key: value.to(tensor.device) for key, value in state.items()}
    return int(held["step"])
