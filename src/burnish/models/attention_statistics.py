"""What attention does with a block's queries, keys and values on calibration text: BoA's Hessians.

Everything comes from one pass over the block's inputs, through a tap on its attention (see nn/attention), so it does
not depend on the attention implementation that the model was loaded with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.models.model import Block
from burnish.models.walk import second_moments
from burnish.nn.attention import causal_weights
from burnish.nn.hessian import Gram

CAUSAL_BLOCK = 128
"""Tokens whose attention is multiplied out at once."""


@dataclass
class AttentionStatistics:
    """Sums over the calibration tokens of one block.

    Attributes:
        block: The block.
        inputs: Role to second moments of that layer's input.
        queries: Σ q qᵀ after RoPE, (heads, width, width).
        keys: Σ k kᵀ after RoPE, (kv_heads, width, width).
        seen_values: Σ (A X)ᵀ(A X) averaged over the group's query heads, (kv_heads, inputs, inputs); once all tokens
            are in, its mean over tokens; None if not asked.
    """

    block: Block
    inputs: dict[str, Gram]
    queries: Tensor
    keys: Tensor
    seen_values: Tensor | None
    count: int = 0

    @property
    def tokens(self) -> int:
        """Calibration tokens that were seen."""
        return self.count

    def columns(self, role: str) -> Tensor:
        """Mean second moments of a layer's input, (inputs, inputs)."""
        return self.inputs[role].mean()

    def values(self) -> Tensor:
        """v's column Hessian for each key/value head, (kv_heads, inputs, inputs)."""
        assert self.seen_values is not None
        return self.seen_values

    def rows(self, role: str) -> Tensor:
        """Row Hessian of each head of q or k, pulled back through RoPE and the head norms: (heads, width, width).

        For q: the keys of the head's group. For k: the mean over the group's queries.
        """
        shape = self.block.model.heads
        if role == "q":
            moments = self.keys.repeat_interleave(shape.group, 0)
        else:
            moments = self.queries.view(shape.kv, shape.group, shape.width, shape.width).mean(1)
        moments = moments / max(self.count, 1)
        adapter = self.block.model.adapter
        if adapter.rope:
            cos, sin = self.block.context["position_embeddings"]
            moments = pull_back(moments, cos[0].to(moments), sin[0].to(moments))
        if adapter.head_norms is not None:
            norm = self.block.at(adapter.head_norms[("q", "k").index(role)])
            gain = (adapter.norm_offset + norm.weight.detach()).to(moments)
            moments = moments * gain[:, None] * gain[None, :]
        return _symmetric(moments)


def pull_back(moments: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """mean_t R_tᵀ M R_t, with R_t the RoPE matrix at position t, in closed form.

    RoPE is y = x ∘ cos_t + (P x) ∘ sin_t, where P maps (a, b) to (−b, a) on the two halves of a head; so
    R_t = diag(cos_t) + diag(sin_t) P, and the mean over t needs only the mean outer products of cos and sin.

    Args:
        moments: (heads, width, width).
        cos: (tokens, width).
        sin: (tokens, width).
    """
    tokens, width = cos.shape
    turn = torch.zeros(width, width, dtype=moments.dtype, device=moments.device)
    half = width // 2
    index = torch.arange(half, device=moments.device)
    turn[index, index + half] = -1.0
    turn[index + half, index] = 1.0
    straight = moments * (cos.T @ cos / tokens)
    crossed = (moments * (cos.T @ sin / tokens)) @ turn
    twice = turn.T @ (moments * (sin.T @ sin / tokens)) @ turn
    return straight + crossed + crossed.transpose(-1, -2) + twice


def collect(block: Block, roles: tuple[str, ...], values: bool) -> AttentionStatistics:
    """Run a block on its calibration inputs and gather what BoA needs.

    Args:
        block: A block of a walk.
        roles: The layers whose input moments are needed.
        values: Whether v's Hessians, seen through attention, are needed.
    """
    shape = block.model.heads
    device = block.inputs[0].device
    attention = block.at(block.model.adapter.attention)
    width = block.sites(("v",))[0].linear.in_features
    found = AttentionStatistics(
        block,
        {},
        torch.zeros(shape.query, shape.width, shape.width, dtype=torch.float64, device=device),
        torch.zeros(shape.kv, shape.width, shape.width, dtype=torch.float64, device=device),
        torch.zeros(shape.kv, width, width, dtype=torch.float64, device=device) if values else None,
    )
    entering: list[Tensor] = []
    window = getattr(attention, "sliding_window", None) or (
        getattr(block.model.config, "sliding_window", None) if block.model.config.model_type == "mistral" else None
    )
    scaling = 1.0 if block.model.config.model_type == "opt" else attention.scaling

    def tap(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        for total, states in ((found.queries, query), (found.keys, key)):
            flat = states.float().transpose(0, 1).flatten(1, 2)
            total += flat.transpose(1, 2) @ flat
        found.count += query.shape[0] * query.shape[2]
        if found.seen_values is not None:
            hidden = entering.pop()
            for row in range(len(query)):
                weights = causal_weights(query[row : row + 1], key[row : row + 1], scaling, window)[0]
                found.seen_values += _through(weights, hidden[row].float())
        return query, key, value

    v = block.sites(("v",))[0].linear
    hook = v.register_forward_pre_hook(lambda _, args: entering.append(args[0])) if values else None
    attention.tap = tap
    try:
        wanted = roles if set(roles) - {"q", "k", "v"} else (*roles, "o")
        found.inputs = second_moments(block, wanted)
    finally:
        del attention.tap
        if hook is not None:
            hook.remove()
    if not found.count:
        raise RuntimeError("a block was asked for its attention outside its walk, where nothing taps it")
    if found.seen_values is not None:
        for head in found.seen_values:  # one by one, in place: they are the largest matrices of a block
            head.copy_(_symmetric(head) / found.count)
    return found


def _through(weights: Tensor, hidden: Tensor) -> Tensor:
    """mean_h (A_h X)ᵀ(A_h X) of each key/value head, (kv_heads, inputs, inputs).

    A token attends only to what came before it, so tokens are taken in blocks, each with the columns that it can see.

    Args:
        weights: (kv_heads, group, tokens, tokens), lower triangular.
        hidden: X, (tokens, inputs).
    """
    kv, group, tokens, _ = weights.shape
    short = tokens <= hidden.shape[1]
    total = weights.new_zeros(kv, tokens, tokens) if short else weights.new_zeros(kv, *hidden.shape[1:] * 2)
    for begin in range(0, tokens, CAUSAL_BLOCK):
        end = min(begin + CAUSAL_BLOCK, tokens)
        seen = weights[:, :, begin:end, :end].flatten(1, 2)
        if short:
            total[:, :end, :end].baddbmm_(seen.transpose(1, 2), seen)
        else:
            mixed = seen @ hidden[:end]
            total += mixed.transpose(1, 2) @ mixed
    if not short:
        return total / group
    inner = (total.view(kv * tokens, tokens) @ hidden / group).view(kv, tokens, -1)
    return (hidden.T @ inner.transpose(0, 1).flatten(1)).view(-1, kv, hidden.shape[1]).transpose(0, 1)


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.transpose(-1, -2)) / 2
