"""BoA: GPTQ whose Hessians know about attention, without backpropagation.

## How it works

GPTQ measures the error of each linear layer on its own: tr(ΔW H ΔWᵀ). BoA measures it where it matters, after
attention, with a Kronecker metric H_row ⊗ H_col for each head:

* **q** (each head h): the error of the logits is ΔW_q x against all keys, so H_row = Σ k kᵀ over the keys *after* RoPE,
  pulled back through the rotation: H_row = mean_t R_tᵀ (Σ k kᵀ) R_t, R_t being RoPE's matrix at position t. H_col = Σ x xᵀ.
* **k**: the same with the queries of the head; with grouped-query attention, the mean over the query heads of the group.
* **v** (`block_v`): H_col of head h = Σ (A_h X)ᵀ(A_h X) with A_h the head's causal attention, averaged over the group; no
  row metric, or with `v_row_metric` W_oᵀW_o of the head (the paper's eq. 9).
* o, gate, up, down (fc1, fc2): plain GPTQ.

The row loop: round row r by GPTQ, let D be the row as it was before its own column loop minus the rounded row, and take
U_row[r, r′]/U_row[r, r] · D off each later row r′ of the head (U_row is the upper Cholesky factor of H_row⁻¹). This is
exactly GPTQ on the Kronecker Hessian. Here weights on one anti-diagonal are rounded together (see nn/rounding), which
gives the same codes in rows + columns steps instead of rows × columns.

The grid of each row (`qparam = "hessian"`): shrink the range, try the zero point rounded down and up, keep the smallest
(q − w) H_col (q − w)ᵀ. It is chosen before rows and columns are reordered, and stays.

## Differences

* Attention is computed here from post-RoPE queries and keys under the layer's own causal or sliding-window mask. The
  released code asks for `output_attentions`, which since transformers 4.53 silently drops the causal mask when the model
  was loaded with SDPA, and its Hessians are then wrong.
* The v row metric of eq. (9) is in the paper and not in the released code: off by default, `v_row_metric` turns it on.
* Factors and loops in float64, scales rounded to half precision first, damping raised and reported when a factor fails.
* The full quadratic form decides among the eight ranges that a sketch of it (four directions and a diagonal) ranks
  first, not among all.
* Groups (`group`) are an addition, so that GGUF and vLLM's fast kernels can take the result; the paper has whole rows.
* q and k norms (Qwen3, Gemma 3): their weights enter the pull-back, the division by each token's own length does not.
* `rows_per_step` and `refine_scales` come from the successor TurboBoA and are off by default.

## When not to use it

Its gain over gptq is on q, k and v, at 2 and 3 bits; at 4 bits with small groups expect little. At 2 bits on a whole
small model with grouped queries the gain is lost among what rounding the other layers does (see the claim's evidence).
It needs calibration text of the kind that the model will see.

## References

Kim, Kim, Cho, Lee, Kim, Jeon. BoA: Attention-aware Post-training Quantization without Backpropagation. ICML 2025, arXiv
2406.13474. Defaults: per-channel asymmetric grids, 128 windows of 2048 tokens, 1 % damping.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.models.attention_statistics import AttentionStatistics, collect
from burnish.models.calibration import calibration_windows
from burnish.models.layers import LayerLog
from burnish.models.model import Model
from burnish.models.rounding_settings import CalibratedRounding, Group
from burnish.models.walk import Walk
from burnish.nn.compensate import RowMetric, compensate, refined
from burnish.nn.hessian import damp
from burnish.nn.site import Site, output_error

if TYPE_CHECKING:
    from datasets import Dataset

    from burnish.models.model import Block


class BoA(CalibratedRounding):
    """Round weights by GPTQ with Hessians that see through attention."""

    paper: ClassVar[Paper | None] = Paper(
        title="BoA: Attention-aware Post-training Quantization without Backpropagation",
        authors="Kim, Kim, Cho, Lee, Kim, Jeon",
        year=2025,
        venue="ICML 2025",
        arxiv="2406.13474",
    )

    group: Group = -1
    """Weights along a row that share one scale; -1 for a whole row, as in the paper."""
    qparam: Literal["minmax", "mmse", "hessian"] = "hessian"
    """How the grid is chosen: the whole range, the smallest weight error, or the smallest output error."""
    block_v: bool = True
    """Give v one column Hessian a head, seen through that head's attention."""
    act_order_col: bool = True
    """Round the columns with the largest inputs first."""
    act_order_row: bool = True
    """Round the rows of a head with the largest row metric first."""
    v_row_metric: bool = False
    """Give v the row metric of the paper's eq. (9), which the released code leaves out; refused without block_v."""
    rows_per_step: Annotated[int, Field(ge=1)] = 1
    """Rows of a head that are rounded together, without compensating one another (TurboBoA); not faster here."""
    refine_scales: bool = False
    """After rounding, refit each scale to the codes by least squares in the Hessian's metric (TurboBoA)."""
    damping: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Fraction of each Hessian's mean diagonal that is added to it."""

    @model_validator(mode="after")
    def _needs_block_v(self) -> Self:
        if self.v_row_metric and not self.block_v:
            raise ValueError("v_row_metric needs block_v")
        return self

    def __call__(self, model: Model, calib: Dataset, run: Run | None = None) -> Model:
        """Round all linear layers of the blocks.

        Args:
            model: Any supported architecture; it is not changed.
            calib: Calibration text.
            run: Where progress, finished blocks and the per-layer record go.

        Raises:
            Unsupported: an architecture without plain linear layers.
            BadInput: too little text for the windows, or values that are not finite.
        """
        run = ensure(run)
        model = model.fork()
        log = LayerLog(run)
        for block in run.chain(Walk(model, calibration_windows(self, model, calib, run)), step="boa"):
            sites = block.sites(self.layers)
            roles = tuple(site.role for site in sites)
            seen = collect(block, roles, values=self.block_v and "v" in roles)
            metrics = {site.role: seen.rows(site.role) for site in sites if site.role in ("q", "k")}
            if self.v_row_metric and self.block_v and "v" in roles:
                metrics["v"] = _output_metric(block)
            for site in sites:
                log.add(site, self.bits, tokens=seen.tokens, **self._round(site, seen, metrics.get(site.role)))
        log.close()
        return model.then(self.describe())

    def _round(self, site: Site, seen: AttentionStatistics, rows: Tensor | None) -> dict[str, Any]:
        plain = seen.columns(site.role)
        columns = seen.values() if site.role == "v" and self.block_v else plain
        before = site.weight
        figures = compensate(
            site,
            columns,
            self.spec,
            search=self.qparam,
            act_order=self.act_order_col,
            damping=self.damping,
            rows=None if rows is None else RowMetric(rows, self.act_order_row, self.rows_per_step),
        )
        if self.refine_scales:
            metric = None if rows is None else damp(rows, self.damping)
            refined(site, before, damp(columns, self.damping), metric)
        return {**figures, **output_error(before, site.weight, plain)}


def _output_metric(block: Block) -> Tensor:
    """W_oᵀ W_o of each key/value head, summed over its query heads: (kv_heads, head_dim, head_dim)."""
    shape = block.model.heads
    weight = block.sites(("o",))[0].checked().double()
    grouped = weight.view(len(weight), shape.kv, shape.group, shape.width)
    return torch.einsum("ngrd,ngre->gde", grouped, grouped)
