"""The Triton kernels in Triton's interpreter, on a CPU: their numbers, not their speed. They were not run on a GPU here."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator

import pytest
import torch

from burnish.core.errors import Unsupported
from burnish.nn.kronecker_sparse import KSLinear, multiply
from burnish.nn.ks_pattern import Pattern, as_stored

pytest.importorskip("triton", reason="triton is not installed (the extra 'triton')")
NAME = "burnish.nn.ks_triton"


@pytest.fixture(scope="module", autouse=True)
def interpreter() -> Iterator[None]:
    """Kernels are made for the interpreter when their module is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        sys.modules.pop(NAME, None)
        importlib.import_module(NAME)
        yield
    sys.modules.pop(NAME, None)


def cases() -> list[tuple[tuple[int, int, int, int], int]]:
    """30 patterns with a batch: ragged, prime, one, larger than a tile; few small matrices, for each is slow to interpret."""
    draw = random.Random(0)
    edges = [((1, 1, 1, 1), 1), ((1, 16, 16, 1), 16), ((1, 70, 5, 1), 3), ((1, 3, 67, 2), 2), ((2, 5, 3, 1), 66)]
    sizes = (1, 2, 3, 7, 13, 16, 17, 24, 31)
    made = [((draw.randint(1, 2), draw.choice(sizes), draw.choice(sizes), draw.randint(1, 2)), draw.choice((1, 5, 19)))
            for _ in range(25)]  # fmt: skip
    return [*edges, *made]


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the interpreter's own use of NumPy
def test_forward_and_both_gradients_are_those_of_torch(layout: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for number, (shape, batch) in enumerate(cases()):
        pattern = Pattern(*shape)
        weight = torch.randn(shape, generator=generator)
        weight = (as_stored(weight) if number % 2 else weight).requires_grad_()
        x = torch.randn(batch, pattern.columns, generator=generator)
        x = (x if layout == "first" else x.t()).detach().requires_grad_()
        dy = torch.randn(batch, pattern.rows, generator=generator)
        found, wanted = ([], [])
        for way, kept in (("triton", found), ("einsum", wanted)):
            y = multiply(x, weight, layout, way)
            kept += [y.detach(), *torch.autograd.grad(y, (x, weight), dy if layout == "first" else dy.t())]
        for one, other, what in zip(found, wanted, ("y", "dx", "dw"), strict=True):
            error = (one - other).abs().max() / other.abs().max().clamp(min=1e-30)
            assert error <= 1e-5, (shape, batch, what, float(error))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_layer_an_empty_batch_and_half_precision() -> None:
    layer = KSLinear([Pattern(2, 3, 4, 1), Pattern(1, 5, 3, 2)], algorithm="triton")
    for shape in ((2, 3), (0,)):
        x = torch.randn(*shape, 8)
        found = layer(x)
        assert torch.allclose(found, torch.nn.functional.linear(x, layer.dense(), layer.bias), atol=1e-5)
        gradients = torch.autograd.grad(found.sum(), list(layer.parameters()))
        assert all(gradient.isfinite().all() for gradient in gradients)
    x, weight = torch.randn(5, 8), torch.randn(2, 3, 4, 1)
    half = multiply(x.half(), weight.half(), "first", "triton")
    assert half.dtype == torch.float16
    assert torch.allclose(half.float(), multiply(x, weight), atol=3e-2)


def test_what_the_kernel_does_not_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unsupported, match="double precision"):
        multiply(torch.randn(5, 8).double(), torch.randn(2, 3, 4, 1).double(), "first", "triton")
    monkeypatch.setattr(f"{NAME}._interpreted", lambda: False)
    with pytest.raises(Unsupported, match="on a CPU"):
        multiply(torch.randn(5, 8), torch.randn(2, 3, 4, 1), "first", "triton")
