"""Kronecker-sparse linear layers: products of matrices with few entries in a regular place, forward and backward.

One class, `KSLinear`, stands for block-diagonal, low-rank, Monarch and butterfly layers alike; `multiply` is the product by
one factor. How a product is computed is chosen by `burnish.nn.ks_dispatch`, or by the caller. The three maps involved are
closed under differentiation, so gradients of any order exist: with K(W) the factor,

* y = K(W) x;
* dx = K(Wᵀ) dy, where Wᵀ is the weight with b and c exchanged: a product by a Kronecker-sparse matrix again;
* dW[a, b, c, d] = Σ_n dy[n, a, b, d] x[n, a, c, d]: one b × c product over the batch for each (a, d).

Nothing but x and W is kept for the backward pass. With the batch last nothing is allocated but what is returned.

Weights have shape (a, b, c, d) and lie in memory as (a, d, b, c), so that each small matrix is in one piece: BLAS takes any
distance between rows, of inputs and outputs too, but needs neighbours next to each other. Other arrangements are accepted and
copied where that is needed.

The paper's code has no backward pass, does not check that factors fit together, and runs on CUDA alone; this is written
from its mathematics.

Gonon, Zheng, Carrivain, Le. Fast inference with Kronecker-sparse matrices. ICML 2025, arXiv 2405.15013.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from burnish.core.errors import BadInput, Unsupported
from burnish.core.extras import require
from burnish.nn import kernels
from burnish.nn.ks_dispatch import THINNEST, Algorithm, Layout, choose, choose_layout, supported
from burnish.nn.ks_pattern import Pattern, as_stored, check_chain, dense, parse_chain, pattern_of

# -- the product by one factor ----------------------------------------------------------------------------------------


def multiply(x: Tensor, weight: Tensor, layout: Layout = "first", algorithm: Algorithm = "auto") -> Tensor:
    """Multiply vectors by a Kronecker-sparse matrix; differentiable, any number of times.

    Args:
        x: (batch, a·c·d), or (a·c·d, batch) with the layout "last"; the batch may be empty.
        weight: (a, b, c, d), of the same dtype and on the same device.
        layout: Where the batch is, in x and in the result.
        algorithm: How; "auto" takes what is expected to be quickest.

    Returns:
        (batch, a·b·d), or (a·b·d, batch), contiguous.

    Raises:
        BadInput: sizes, dtypes or devices that do not fit together.
        Unsupported: a way that cannot compute this pattern.
        MissingExtra: the Triton kernel is asked for, and triton is not installed.
    """
    pattern = pattern_of(weight)
    _check(x, weight, pattern, layout)
    if not supported(algorithm, pattern):
        why = {"block": "its d is not 1", "compiled": f"its d is below {THINNEST}, a vector"}.get(
            algorithm, "the whole matrix would be too large"
        )
        raise Unsupported(f"{algorithm!r} for the pattern ({pattern})", why, 'use algorithm="auto"')
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        found: Tensor = _Multiply.apply(x, weight, layout, algorithm)
        return found
    with torch.no_grad():  # products write into what they allocated, which a graph would not allow
        return _product(x, weight, layout, algorithm)


def _check(x: Tensor, weight: Tensor, pattern: Pattern, layout: Layout) -> None:
    where = {"first": 1, "last": 0}
    if layout not in where:
        raise BadInput(f"there is no layout {layout!r}", "use first (batch, features) or last (features, batch)")
    if x.ndim != 2 or x.shape[where[layout]] != pattern.columns:
        wanted = f"(batch, {pattern.columns})" if layout == "first" else f"({pattern.columns}, batch)"
        raise BadInput(
            f"the pattern ({pattern}) takes {pattern.columns} features, and the input has shape {tuple(x.shape)}",
            f"with the layout {layout!r} give {wanted}",
        )
    if x.dtype != weight.dtype or x.device != weight.device:
        raise BadInput(f"the input is {x.dtype} on {x.device} and the weight {weight.dtype} on {weight.device}")


class _Multiply(torch.autograd.Function):
    """K(W) x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layout: Layout, algorithm: Algorithm) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.way = layout, algorithm
        return _product(x, weight, layout, algorithm)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        layout, algorithm = ctx.way
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = _Multiply.apply(gradient, weight.transpose(1, 2), layout, algorithm)
        if ctx.needs_input_grad[1]:
            dw = _WeightGradient.apply(gradient, x, pattern_of(weight), layout, algorithm)
        return dx, dw, None, None


class _WeightGradient(torch.autograd.Function):
    """Σ_n dy x, (a, b, c, d); linear in both, so its own gradients are products by K again."""

    @staticmethod
    def forward(ctx: Any, dy: Tensor, x: Tensor, pattern: Pattern, layout: Layout, algorithm: Algorithm) -> Tensor:
        ctx.save_for_backward(dy, x)
        ctx.way = layout, algorithm
        return _outer(dy, x, pattern, layout, algorithm)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        dy, x = ctx.saved_tensors
        d_dy = _Multiply.apply(x, gradient, *ctx.way) if ctx.needs_input_grad[0] else None
        d_x = _Multiply.apply(dy, gradient.transpose(1, 2), *ctx.way) if ctx.needs_input_grad[1] else None
        return d_dy, d_x, None, None, None


def _product(x: Tensor, weight: Tensor, layout: Layout, algorithm: Algorithm) -> Tensor:
    """`multiply` without checks and without gradients."""
    pattern = pattern_of(weight)
    batch = x.shape[0 if layout == "first" else 1]
    if algorithm == "auto":
        algorithm = choose(pattern, batch, x.dtype, layout, x.device.type)
    if algorithm == "triton":
        return _triton().product(x, weight, layout)
    if algorithm == "compiled":
        return _compiled(x, weight, layout)
    if layout == "first" and algorithm == "strided":
        return _last_strided(x.t().contiguous(), weight, pattern).t().contiguous()
    return _PRODUCTS[layout, algorithm](x, weight, pattern)


def _compiled(x: Tensor, weight: Tensor, layout: Layout) -> Tensor:
    """The kernel of burnish-kernels; it has the batch first.

    Raises:
        Unsupported: it is not installed, or does not take such numbers.
    """
    if not kernels.runs_here(x.detach(), weight.detach()):
        raise Unsupported(
            "the algorithm 'compiled'",
            "it takes float32 on the CPU, and burnish-kernels",
            'pip install ./kernels of a clone, or use algorithm="auto"',
        )
    product = kernels.kronecker_sparse if torch.compiler.is_compiling() else kernels.apply_kronecker_sparse
    if layout == "first":
        return product(x, weight)
    return product(x.t().contiguous(), weight).t().contiguous()


def _triton() -> Any:
    """The module of the kernels, imported only for those who ask for them.

    Raises:
        MissingExtra: triton is not installed.
    """
    require("the algorithm 'triton'", "triton")
    from burnish.nn import ks_triton

    return ks_triton


def _first_permute(x: Tensor, weight: Tensor, pattern: Pattern) -> Tensor:
    a, b, c, d = pattern.shape
    gathered = x.reshape(len(x), a, c, d).permute(1, 3, 0, 2).reshape(a * d, len(x), c)
    found = torch.bmm(gathered, _matrices(weight).transpose(1, 2))
    return found.view(a, d, len(x), b).permute(2, 0, 3, 1).reshape(len(x), pattern.rows).contiguous()


def _last_permute(x: Tensor, weight: Tensor, pattern: Pattern) -> Tensor:
    a, b, c, d = pattern.shape
    batch = x.shape[1]
    gathered = x.reshape(a, c, d, batch).permute(0, 2, 1, 3).reshape(a * d, c, batch)
    found = torch.bmm(_matrices(weight), gathered)
    return found.view(a, d, b, batch).permute(0, 2, 1, 3).reshape(pattern.rows, batch).contiguous()


def _first_einsum(x: Tensor, weight: Tensor, pattern: Pattern) -> Tensor:
    a, _, c, d = pattern.shape
    found = torch.einsum("abcd,nacd->nabd", weight, x.reshape(len(x), a, c, d))
    return found.reshape(len(x), pattern.rows).contiguous()


def _last_einsum(x: Tensor, weight: Tensor, pattern: Pattern) -> Tensor:
    a, _, c, d = pattern.shape
    found = torch.einsum("abcd,acdn->abdn", weight, x.reshape(a, c, d, x.shape[1]))
    return found.reshape(pattern.rows, x.shape[1]).contiguous()


def _first_block(x: Tensor, weight: Tensor, pattern: Pattern) -> Tensor:
    a, b, c, _ = pattern.shape
    if a == 1:
        return torch.mm(x, weight[0, :, :, 0].t())
    y = x.new_empty(len(x), a, b)
    torch.bmm(x.reshape(len(x), a, c).transpose(0, 1), _matrices(weight).transpose(1, 2), out=y.transpose(0, 1))
    return y.view(len(x), pattern.rows)


def _last_block(x: Tensor, weight: Tensor, pattern: Pattern) -> Tensor:
    a, _, c, _ = pattern.shape
    if a == 1:
        return torch.mm(weight[0, :, :, 0], x)
    return torch.bmm(_matrices(weight), x.reshape(a, c, x.shape[1])).view(pattern.rows, x.shape[1])


def _first_dense(x: Tensor, weight: Tensor, pattern: Pattern) -> Tensor:
    return x @ dense(weight).t()


def _last_dense(x: Tensor, weight: Tensor, pattern: Pattern) -> Tensor:
    return dense(weight) @ x


def _last_strided(x: Tensor, weight: Tensor, pattern: Pattern) -> Tensor:
    """Each small product reads and writes rows that lie d apart, where they are."""
    a, b, c, d = pattern.shape
    y = x.new_empty(a, b, d, x.shape[1])
    x, weight = x.reshape(a, c, d, x.shape[1]), weight.permute(0, 3, 1, 2)
    # One batched call takes matrices that are equally far apart: those of one a, or those of one d.
    if a <= d:
        for i in range(a):
            torch.bmm(weight[i], x[i].transpose(0, 1), out=y[i].transpose(0, 1))
    else:
        for j in range(d):
            torch.bmm(weight[:, j], x[:, :, j], out=y[:, :, j])
    return y.view(pattern.rows, y.shape[3])


_PRODUCTS = {
    ("first", "permute"): _first_permute,
    ("first", "einsum"): _first_einsum,
    ("first", "block"): _first_block,
    ("first", "dense"): _first_dense,
    ("last", "strided"): _last_strided,
    ("last", "permute"): _last_permute,
    ("last", "einsum"): _last_einsum,
    ("last", "block"): _last_block,
    ("last", "dense"): _last_dense,
}


def _matrices(weight: Tensor) -> Tensor:
    """The small matrices, (a·d, b, c); a view of a weight that lies as `as_stored` has it."""
    a, b, c, d = weight.shape
    return weight.permute(0, 3, 1, 2).reshape(a * d, b, c)


def _outer(dy: Tensor, x: Tensor, pattern: Pattern, layout: Layout, algorithm: Algorithm) -> Tensor:
    """The weight's gradient, (a, b, c, d), lying as `as_stored` has it; dy and x are laid out alike."""
    a, b, c, d = pattern.shape
    if algorithm == "triton":
        return _triton().outer(dy, x, pattern, layout)
    if layout == "first" and d == 1:
        dys, xs = dy.reshape(len(dy), a, b), x.reshape(len(x), a, c)
        return torch.bmm(dys.permute(1, 2, 0), xs.transpose(0, 1)).view(a, d, b, c).permute(0, 2, 3, 1)
    if layout == "first":
        dy, x = dy.t().contiguous(), x.t().contiguous()
    found = x.new_empty(a, d, b, c)
    dy, x = dy.reshape(a, b, d, dy.shape[1]), x.reshape(a, c, d, x.shape[1])
    if a <= d:
        for i in range(a):
            torch.bmm(dy[i].transpose(0, 1), x[i].permute(1, 2, 0), out=found[i])
    else:
        for j in range(d):
            torch.bmm(dy[:, :, j], x[:, :, j].transpose(1, 2), out=found[:, j])
    return found.permute(0, 2, 3, 1)


# -- the layer --------------------------------------------------------------------------------------------------------


class KSLinear(nn.Module):
    """A linear layer whose matrix is a product of Kronecker-sparse factors.

    Args:
        patterns: In the order in which they are applied: the first takes the input.
        bias: Whether there is one.
        layout: "first": inputs are (…, features), as of any linear layer; "last": (features, batch).
        algorithm: How each product is computed; "auto" takes what is expected to be quickest, and with the batch first also
            whether a whole chain is computed with it last.
        device: Of the parameters.
        dtype: Of the parameters.

    Factors start evenly in ±1/√c and the bias in ±1/√inputs, as in the paper's code.

    Raises:
        BadInput: no factors, or factors that do not fit together.
        Unsupported: a way that cannot compute one of the patterns.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        patterns: Sequence[Pattern],
        bias: bool = True,
        layout: Layout = "first",
        algorithm: Algorithm = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_chain(patterns)
        for pattern in patterns:
            if not supported(algorithm, pattern):
                raise Unsupported(f"{algorithm!r} for the pattern ({pattern})", "it cannot compute this pattern")
        self.patterns, self.layout, self.algorithm = tuple(patterns), layout, algorithm
        self.in_features, self.out_features = patterns[0].columns, patterns[-1].rows
        empty = (torch.empty(pattern.shape, device=device, dtype=dtype) for pattern in self.patterns)
        self.factors = nn.ParameterList(nn.Parameter(as_stored(weight)) for weight in empty)
        self.bias = nn.Parameter(torch.empty(self.out_features, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw factors and bias anew."""
        for pattern, factor in zip(self.patterns, self.factors, strict=True):
            nn.init.uniform_(factor, -(pattern.c**-0.5), pattern.c**-0.5)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -(self.in_features**-0.5), self.in_features**-0.5)

    @classmethod
    def of(
        cls, factors: Sequence[Tensor], bias: Tensor | None = None, layout: Layout = "first", trained: bool = False
    ) -> KSLinear:
        """A layer with given factors, each (a, b, c, d), in the order in which they are applied.

        Args:
            factors: Of one dtype and on one device; they are copied.
            bias: (outputs,), or None.
            layout: As of the class.
            trained: Whether its parameters take gradients.

        Raises:
            BadInput: factors that do not fit together, or a bias of another size.
        """
        patterns = [pattern_of(factor) for factor in factors]
        check_chain(patterns)
        if bias is not None and bias.shape != (patterns[-1].rows,):
            raise BadInput(f"the bias has shape {tuple(bias.shape)}, and the layer gives {patterns[-1].rows} features")
        with torch.device("meta"):
            made = cls(patterns, bias is not None, layout)
        kept = [nn.Parameter(as_stored(factor.detach()).clone(), requires_grad=trained) for factor in factors]
        made.factors = nn.ParameterList(kept)
        if bias is not None:
            made.bias = nn.Parameter(bias.detach().to(kept[0].dtype).clone(), requires_grad=trained)
        return made

    def forward(self, input: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs); with the layout "last", (inputs, batch) to (outputs, batch).

        Raises:
            BadInput: another number of features, or another dtype or device than the factors'.
        """
        if self.layout == "last":
            found = self._chain(input, "last")
            return found if self.bias is None else found + self.bias[:, None]
        if input.ndim == 0 or input.shape[-1] != self.in_features:
            raise BadInput(
                f"the layer takes {self.in_features} features, and the input has shape {tuple(input.shape)}",
                "give (…, features)",
            )
        x = input.reshape(input.shape[:-1].numel(), self.in_features)
        if self.algorithm == "auto" and choose_layout(self.patterns, len(x), x.dtype, x.device.type) == "last":
            found = self._chain(x.t().contiguous(), "last").t().contiguous()
        else:
            found = self._chain(x, "first")
        found = found if self.bias is None else found + self.bias
        return found.reshape(*input.shape[:-1], self.out_features)

    def _chain(self, x: Tensor, layout: Layout) -> Tensor:
        for factor in self.factors:
            x = multiply(x, factor, layout, self.algorithm)
        return x

    def dense(self) -> Tensor:
        """The whole matrix, (outputs, inputs); gradients pass."""
        return product_of(list(self.factors))

    @property
    def nonzeros(self) -> int:
        """Numbers in all factors."""
        return sum(pattern.nonzeros for pattern in self.patterns)

    @property
    def density(self) -> float:
        """Numbers in all factors, for one of the dense matrix."""
        return self.nonzeros / (self.in_features * self.out_features)

    def extra_repr(self) -> str:
        """For printing the model."""
        chain = " ".join(map(str, self.patterns))
        return f"{self.in_features}, {self.out_features}, patterns={chain!r}, bias={self.bias is not None}"


def product_of(factors: Sequence[Tensor]) -> Tensor:
    """The whole matrix of a chain, (outputs, inputs); factors are (a, b, c, d), in the order in which they are applied."""
    whole = dense(factors[0])
    for factor in factors[1:]:
        whole = multiply(whole, factor, "last")
    return whole


# -- layers in a model ------------------------------------------------------------------------------------------------


def put(net: nn.Module, path: str, layer: nn.Module) -> None:
    """Put a layer in the place of the one at a dotted path."""
    parent, _, name = path.rpartition(".")
    setattr(net.get_submodule(parent), name, layer)


def chains(net: nn.Module) -> dict[str, str]:
    """The path of each Kronecker-sparse layer of a model to its patterns, as `install` takes them."""
    return {path: " ".join(map(str, layer.patterns)) for path, layer in _layers(net)}


def install(net: nn.Module, patterns: Mapping[str, str]) -> None:
    """Put Kronecker-sparse layers in the place of others, for `load_state_dict` to fill.

    Args:
        net: It is changed.
        patterns: Path to patterns, as `chains` gives them.

    Raises:
        BadInput: a path that is no linear layer, or patterns of other sizes than it has.
    """
    for path, chain in patterns.items():
        try:
            old = net.get_submodule(path)
        except AttributeError:
            raise BadInput(f"the model has no layer {path}") from None
        made = parse_chain(chain)
        sizes = made[-1].rows, made[0].columns
        if not isinstance(old, nn.Linear):
            raise BadInput(f"{path} is a {type(old).__name__}, not a linear layer")
        if tuple(old.weight.shape) != sizes:
            raise BadInput(f"{path} is {tuple(old.weight.shape)}, and the patterns {chain} make {sizes}")
        layer = KSLinear(made, old.bias is not None, device=old.weight.device, dtype=old.weight.dtype)
        put(net, path, layer.requires_grad_(old.weight.requires_grad).train(old.training))


def _layers(net: nn.Module) -> Iterator[tuple[str, KSLinear]]:
    for path, module in net.named_modules():
        if isinstance(module, KSLinear):
            yield path, module
