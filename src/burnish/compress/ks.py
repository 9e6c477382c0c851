"""Kronecker-sparse layers: put products of few sparse factors in the place of dense matrices.

## How it works

The pattern (a, b, c, d) is a matrix of abd rows and acd columns, I_a ⊗ 1_{b×c} ⊗ I_d, with abcd numbers; Monarch, butterfly,
block-diagonal and low-rank matrices are products of such factors. Each chosen linear layer becomes the product that is
nearest to its weight. Two factors: entries fall into blocks that each are any matrix of rank r, so that cut singular value
decompositions give the nearest product in closed form. More factors: the last one is split off, then the next. Without
patterns, every layer takes the two factors within `density` that come nearest, of the pairs
(p, r q, inputs / p, 1), (1, outputs / q, r p, q) that use most of it.

With `fit = "output"` columns count by the root mean square of their input on calibration text, and the factor that is
applied last is then fitted by least squares to what the layer gives on that text, block after block; `fit = "weight"` needs
no text.

The run records for each layer the patterns, their density, the share of the weight's squares and (with text) of the output's
that is lost, and the share that the best matrix of low rank with as many numbers would lose. Layers have gradients: the
result can be trained on in Python.

## Differences

* The paper brings a kernel for such layers, and no way to make them from a trained model: it trains them from nothing.
  Projection and fit are burnish's own; the order of the cuts follows Zheng et al. 2024.
* Here layers have a backward pass, factors are checked to fit together, and the way to compute is chosen by the pattern, the
  batch and measured times; the paper's kernel is one of several ways, and no GPU was at hand to time it.

## When not to use it

To compress a trained dense model without training it on: its matrices are not of this kind, and with a quarter of the
numbers the nearest product loses half of a weight's squares and more, which no language model survives, and a plain matrix of
low rank often comes nearer. Rounding to 4 bits keeps nearly everything at the same size. Use this to see how far a layer is from the pattern, as the start of
training, for layers that were trained in the pattern, or for latency studies, where values do not matter.

In half precision, and with d = 1, the paper's own measurements show no gain of its kernel over batched products. The result
is no ordinary folder: it can be measured here, and not exported; `burnish.nn.kronecker_sparse.install` and
`load_state_dict` put a saved state back.

## References

Gonon, Zheng, Carrivain, Le. Fast inference with Kronecker-sparse matrices. ICML 2025, arXiv 2405.15013.
Zheng, Le, Riccietti, Gribonval. Butterfly Factorization with Error Guarantees. 2024, hal-04763712.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from torch import Tensor

from burnish.core.errors import BadInput
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Compressor
from burnish.models.calibration import calibration_windows
from burnish.models.layers import LayerLog
from burnish.models.model import Block, Model
from burnish.models.rounding_settings import Role
from burnish.models.walk import Walk, second_moments
from burnish.nn.kronecker_sparse import KSLinear, product_of, put
from burnish.nn.ks_pattern import Pattern, parse_chain
from burnish.nn.ks_project import low_rank_error, nearest_pair, project, refit
from burnish.nn.site import Site, output_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from datasets import Dataset


class KS(Compressor):
    """Put products of Kronecker-sparse factors in the place of linear layers."""

    paper: ClassVar[Paper | None] = Paper(
        title="Fast inference with Kronecker-sparse matrices",
        authors="Gonon, Zheng, Carrivain, Le",
        year=2025,
        venue="ICML 2025",
        arxiv="2405.15013",
    )

    patterns: str = "auto"
    """"auto", or factors "a,b,c,d a,b,c,d …" in the order in which they are applied, for layers that are all of one size."""
    density: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """With patterns auto: numbers that a layer's factors may hold, for one of the dense weight."""
    fit: Literal["weight", "output"] = "output"
    """What the factors come near to: the weight, or what the layer gives on calibration text."""
    layers: tuple[Role, ...] = ()
    """Which linear layers of each block to replace, e.g. gate up down; all when empty."""
    samples: Annotated[int, Field(ge=1)] = 16
    """Calibration windows; the default takes what a shorter text holds, a number that you give must fit."""
    length: Annotated[int, Field(ge=2)] = 512
    """Tokens in a calibration window."""
    calib_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Which windows of the calibration text are taken."""

    @field_validator("patterns")
    @classmethod
    def _known(cls, value: str) -> str:
        if value != "auto":
            try:
                parse_chain(value)
            except BadInput as error:
                raise ValueError(error.problem) from None
        return value

    @property
    def reads_calibration(self) -> bool:
        """Whether the result depends on calibration text."""
        return self.fit == "output"

    def __call__(self, model: Model, calib: Dataset | None = None, run: Run | None = None) -> Model:
        """Replace the chosen layers.

        Args:
            model: Any supported architecture; it is not changed.
            calib: For fit output; with fit weight only to report each layer's error.
            run: Where progress, finished blocks and the per-layer record go.

        Raises:
            Unsupported: an architecture without plain linear layers.
            BadInput: patterns of another size than a layer, a density that no pair of factors meets, a weight that is not
                finite, or fit output without calibration text.
        """
        if calib is None and self.reads_calibration:
            raise BadInput("fit output needs calibration text", "give --calib, or take fit weight")
        run = ensure(run)
        model = model.fork()
        self._check(model)
        log = LayerLog(run)
        blocks = model.blocks() if calib is None else Walk(model, calibration_windows(self, model, calib, run))
        for replacing in run.chain(_Blocks(blocks), step="ks"):
            sites = replacing.block.sites(self.layers)
            seen = second_moments(replacing.block, tuple(site.role for site in sites)) if replacing.block.inputs else {}
            for site in sites:
                hessian = seen[site.role].mean() if seen else None
                replacing.put(site, self._factors(site, hessian, log))
        log.close()
        kept = [module for module in model.net.modules() if isinstance(module, KSLinear)]
        share = sum(one.nonzeros for one in kept) / max(sum(one.in_features * one.out_features for one in kept), 1)
        run.metric(ks_layers=len(kept), ks_density=share)
        only = f" ({', '.join(self.layers)} only)" if self.layers else ""
        return model.then(
            f"KS: linear layers{only} are Kronecker-sparse products, {share:.3g} of their numbers, nearest to the {self.fit}",
            ("linear layers are products of Kronecker-sparse factors",),
        )

    def _check(self, model: Model) -> None:
        """Refuse patterns that do not fit the layers, all of them at once, before anything is computed."""
        sites = [site for block in model.blocks() for site in block.sites(self.layers)]
        if not sites:
            raise BadInput(f"{model.config.model_type} has no layers {', '.join(self.layers)}", "choose other --layers")
        if self.patterns == "auto":
            return
        chain = parse_chain(self.patterns)
        sizes = chain[-1].rows, chain[0].columns
        wrong = {f"{site.role} is {tuple(site.weight.shape)}" for site in sites if tuple(site.weight.shape) != sizes}
        if wrong:
            raise BadInput.of(
                f"the patterns {self.patterns} make a matrix {sizes}",
                sorted(wrong),
                "choose --layers of that size, or take patterns auto",
            )

    def _factors(self, site: Site, hessian: Tensor | None, log: LayerLog) -> list[Tensor]:
        """What replaces a layer's weight; also records it."""
        weight = site.checked().double()
        fitted = hessian if self.reads_calibration else None
        scale = None if fitted is None else _sizes(fitted)
        chain: tuple[Pattern, ...]
        if self.patterns == "auto":
            chain = nearest_pair(weight, self.density, scale)
        else:
            chain = parse_chain(self.patterns)
        factors = project(weight, chain, scale)
        if fitted is not None:
            factors = refit(weight, factors, fitted)
        kept = [factor.to(site.linear.weight.dtype) for factor in factors]
        density = sum(factor.numel() for factor in kept) / weight.numel()
        log.add(
            site,
            8 * kept[0].itemsize,
            patterns=" ".join(map(str, chain)),
            density=density,
            low_rank_weight_error=low_rank_error(weight, density),
            **output_error(weight, product_of([factor.double() for factor in kept]), hessian),
        )
        return kept


def _sizes(hessian: Tensor) -> Tensor:
    """The root mean square of each input; one that is never seen counts a little, so that its weight stays finite."""
    squares = hessian.diagonal().double()
    return squares.clamp(min=1e-6 * float(squares.mean().clamp(min=1e-30))).sqrt()


@dataclass
class _Replacing:
    """A block whose linear layers are replaced: what a run keeps of it are the factors.

    Attributes:
        block: The block.
        made: Path inside the block to the new layer.
    """

    block: Block
    made: dict[str, KSLinear]

    @property
    def key(self) -> str:
        return self.block.key

    def put(self, site: Site, factors: list[Tensor]) -> None:
        bias = site.linear.bias
        self._put(site.name.removeprefix(self.block.name + "."), KSLinear.of(factors, bias))

    def _put(self, path: str, layer: KSLinear) -> None:
        self.made[path] = layer.to(next(self.block.module.parameters()).device).eval()
        put(self.block.module, path, layer)

    def state(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for path, layer in self.made.items():
            for number, factor in enumerate(layer.factors):
                found[f"{path}/{number:03d}"] = factor.detach().contiguous()
        return found

    def restore(self, state: Mapping[str, Any]) -> None:
        factors: dict[str, list[Tensor]] = {}
        for key in sorted(state):
            factors.setdefault(key.partition("/")[0], []).append(state[key])
        for path, tensors in factors.items():
            self._put(path, KSLinear.of(tensors, self.block.at(path).bias))


class _Blocks:
    """Blocks, or a walk over them, each with what replaces its layers."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.blocks = blocks

    def __len__(self) -> int:
        assert isinstance(self.blocks, Sized)
        return len(self.blocks)

    def __iter__(self) -> Iterator[_Replacing]:
        for block in self.blocks:
            yield _Replacing(block, {})
