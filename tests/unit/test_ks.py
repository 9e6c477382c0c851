"""Kronecker-sparse products and layers against the dense matrices that they stand for."""

from __future__ import annotations

import copy
import random
import subprocess
import sys

import pytest
import torch
from scipy.linalg import hadamard
from torch import Tensor

from burnish.core.errors import BadInput, MissingExtra, Unsupported
from burnish.nn import kernels
from burnish.nn.kronecker_sparse import KSLinear, chains, install, multiply, product_of
from burnish.nn.ks_dispatch import COSTS, DENSEST, MEASURED, choose, choose_layout, offered, supported
from burnish.nn.ks_pattern import Pattern, as_stored, check_chain, dense, parse_chain

LAYOUTS = ("first", "last")
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17)
DTYPES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def patterns(count: int, seed: int = 0) -> list[tuple[Pattern, int]]:
    """Random patterns, the edges among them, each with a batch."""
    draw = random.Random(seed)
    made: list[tuple[Pattern, int]] = []
    while len(made) < count - 5:
        pattern = Pattern(*(draw.choice(SIZES) for _ in range(4)))
        if pattern.rows * pattern.columns < 100_000:  # the dense matrix that it is compared with
            made.append((pattern, draw.choice((1, 2, 3, 8, 19))))
    edges = [(1, 1, 1, 1), (1, 5, 7, 1), (7, 1, 1, 1), (1, 1, 1, 7), (1, 2, 2, 32)]
    return [*((Pattern(*edge), 3) for edge in edges), *made]


def ways(pattern: Pattern, dtype: torch.dtype = torch.float64) -> list[str]:
    compiled = dtype == torch.float32 and kernels.native() is not None
    return ["auto", *(way for way in MEASURED if supported(way, pattern) and (way != "compiled" or compiled))]


def laid(x: Tensor, layout: str) -> Tensor:
    return x if layout == "first" else x.t().contiguous()


# -- products ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "near"), DTYPES.items(), ids=str)
def test_products_and_gradients_are_those_of_the_dense_matrix(dtype: torch.dtype, near: float) -> None:
    for number, (pattern, batch) in enumerate(patterns(200)):
        weight = normal(*pattern.shape, seed=number, dtype=dtype)
        x = normal(batch, pattern.columns, seed=number + 1, dtype=dtype)
        dy = normal(batch, pattern.rows, seed=number + 2, dtype=dtype)
        matrix = dense(weight.double())
        expected = x.double() @ matrix.t()
        expected_dx = dy.double() @ matrix
        rows, columns = (
            dy.double().unflatten(1, (*pattern.shape[:2], -1)),
            x.double().unflatten(1, (pattern.a, pattern.c, -1)),
        )
        expected_dw = torch.einsum("nabd,nacd->abcd", rows, columns)
        for layout in LAYOUTS:
            for way in ways(pattern, dtype):
                entering = laid(x, layout).requires_grad_()
                given = as_stored(weight).requires_grad_() if number % 2 else weight.clone().requires_grad_()
                y = multiply(entering, given, layout, way)
                assert y.dtype == dtype
                assert y.is_contiguous()
                dx, dw = torch.autograd.grad(y, (entering, given), laid(dy, layout))
                for found, wanted in ((y, expected), (dx, expected_dx)):
                    same(found if layout == "first" else found.t(), wanted, near, f"{pattern} {layout} {way}")
                same(dw, expected_dw, near, f"{pattern} {layout} {way}, dW")


def same(found: Tensor, wanted: Tensor, near: float, what: str) -> None:
    error = float((found.detach().double() - wanted).norm() / wanted.norm().clamp(min=1e-30))
    assert found.shape == wanted.shape, what
    assert error <= near, f"{what}: {error}"


def test_a_dense_matrix_has_its_numbers_where_the_pattern_says() -> None:
    weight = normal(2, 3, 4, 5)
    eye_a, eye_d = torch.eye(2), torch.eye(5)
    matrix = dense(weight)
    support = torch.kron(torch.kron(eye_a, torch.ones(3, 4)), eye_d)
    assert torch.equal(matrix != 0, support != 0)
    assert matrix[1 * 15 + 2 * 5 + 4, 1 * 20 + 3 * 5 + 4] == weight[1, 2, 3, 4]
    # A Kronecker product with identities on both sides is the case in which all small matrices are one.
    shared = normal(3, 4)
    repeated = shared[None, :, :, None].expand(2, 3, 4, 5)
    assert torch.equal(dense(repeated), torch.kron(torch.kron(eye_a.double(), shared), eye_d.double()))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 3, 2, 1), (2, 2, 3, 2), (1, 1, 2, 3)])
def test_first_and_second_derivatives(layout: str, shape: tuple[int, ...]) -> None:
    pattern = Pattern(*shape)
    for way in ways(pattern):
        weight = as_stored(normal(*shape)).requires_grad_()
        x = laid(normal(3, pattern.columns, seed=1), layout).requires_grad_()

        def product(x: Tensor, weight: Tensor, way: str = way) -> Tensor:
            return multiply(x, weight, layout, way)

        assert torch.autograd.gradcheck(product, (x, weight))
        assert torch.autograd.gradgradcheck(product, (x, weight))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_batch_one_vector_and_inputs_that_lie_otherwise(layout: str) -> None:
    for shape in ((2, 3, 4, 5), (3, 2, 5, 1), (1, 1, 1, 4)):
        pattern = Pattern(*shape)
        weight = normal(*shape)
        for batch in (0, 1, 6):
            whole = normal(2 * batch, 2 * pattern.columns, seed=2)
            for x in (whole[::2, ::2], whole[:batch, pattern.columns :]):
                expected = x @ dense(weight).t()
                for way in ways(pattern):
                    entering = (x if layout == "first" else x.t()).detach().requires_grad_()
                    found = multiply(entering, weight.requires_grad_(), layout, way)
                    assert found.shape == laid(expected, layout).shape
                    assert torch.allclose(found, laid(expected, layout))
                    dx, dw = torch.autograd.grad(found.sum(), (entering, weight))
                    assert dx.shape == entering.shape
                    assert batch or not dw.any()


def test_with_the_batch_last_only_the_result_is_allocated() -> None:
    pattern = Pattern(2, 24, 20, 8)
    weight, x = as_stored(normal(*pattern.shape, dtype=torch.float32)), normal(pattern.columns, 64, dtype=torch.float32)
    with torch.profiler.profile(profile_memory=True) as profile:
        multiply(x, weight, "last", "strided")
    events = profile.profiler.kineto_results.events()
    taken = [event.nbytes() for event in events if event.name() == "[memory]" and event.nbytes() > 0]
    assert max(taken) == pattern.rows * 64 * 4
    assert sum(taken) < 1.1 * max(taken)


def test_what_does_not_fit_is_refused_with_its_sizes() -> None:
    weight = normal(2, 3, 4, 5)
    with pytest.raises(BadInput, match=r"\(2,3,4,5\) takes 40 features, and the input has shape \(6, 30\)"):
        multiply(normal(6, 30), weight)
    with pytest.raises(BadInput, match=r"give \(40, batch\)"):
        multiply(normal(6, 40), weight, "last")
    with pytest.raises(BadInput, match=r"shape \(40,\)"):
        multiply(normal(40), weight)
    with pytest.raises(BadInput, match="float32"):
        multiply(normal(6, 40, dtype=torch.float32), weight)
    with pytest.raises(BadInput, match=r"shape \(a, b, c, d\)"):
        multiply(normal(6, 40), weight[0])
    with pytest.raises(BadInput, match="no layout 'middle'"):
        multiply(normal(6, 40), weight, "middle")
    with pytest.raises(Unsupported, match="'block' for the pattern"):
        multiply(normal(6, 40), weight, "first", "block")
    with pytest.raises(Unsupported, match="too large"):
        multiply(torch.empty(1, 2**15), torch.empty(2**15, 1, 1, 1), "first", "dense")


def test_the_kernel_is_refused_where_triton_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "burnish.core.extras", sys.modules["burnish.core.extras"])
    monkeypatch.setitem(sys.modules["burnish.core.extras"].EXTRAS, "triton", ("no_such_triton",))
    with pytest.raises(MissingExtra, match=r"burnish\[triton\]"):
        multiply(normal(6, 40), normal(2, 3, 4, 5), "first", "triton")


def test_nothing_but_torch_is_imported() -> None:
    code = (
        "import sys\n"
        "for name in ('triton', 'numba', 'burnish_kernels', 'lazylinop'):\n"
        "    sys.modules[name] = None\n"
        "import torch\n"
        "from burnish.nn.kronecker_sparse import KSLinear\n"
        "from burnish.nn.ks_pattern import Pattern\n"
        "print(KSLinear([Pattern(2, 3, 4, 5)])(torch.zeros(1, 40)).shape[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "30", done.stderr


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_chosen_is_supported(device: str) -> None:
    large = [Pattern(1, 64, 64, 4096), Pattern(4096, 8, 8, 4), Pattern(1, 8192, 8192, 1), Pattern(1, 2, 2, 14336)]
    for pattern in [*(pattern for pattern, _ in patterns(200)), *large]:
        for batch in (0, 1, 64, 4096):
            for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
                for layout in LAYOUTS:
                    way = choose(pattern, batch, dtype, layout, device)
                    assert way in MEASURED
                    assert supported(way, pattern), (pattern, way)
    assert DENSEST < 4096 * 8 * 4 * 4096 * 8 * 4


def test_a_block_diagonal_matrix_is_one_batched_product_and_the_rule_moves_little() -> None:
    for layout in LAYOUTS:
        assert choose(Pattern(16, 64, 64, 1), 512, torch.float32, layout) == "block"
        assert choose(Pattern(16, 64, 64, 1), 512, torch.float32, layout, "cuda") == "block"
    assert choose(Pattern(6, 64, 64, 16), 4096, torch.float32, "last") not in ("dense", "block")
    assert choose(Pattern(6, 64, 64, 16), 4096, torch.float64, "first") not in ("dense", "block")
    assert choose(Pattern(1, 8, 8, 1), 1, torch.float32, "first") in ("block", "dense")
    # The table knows the ways that there are, in both layouts, and takes no time below nothing.
    for table in COSTS.values():
        assert set(table) == {(layout, way) for layout in LAYOUTS for way in MEASURED} - {("last", "compiled")}
        assert all(figure >= 0 for figures in table.values() for figure in figures)


def test_a_chain_goes_last_only_where_that_pays() -> None:
    wide = (Pattern(6, 64, 64, 16), Pattern(6, 64, 64, 16))
    assert choose_layout(wide, 4096, torch.float64) == "last"
    blocks = (Pattern(6, 64, 64, 1),)
    assert choose_layout(blocks, 4096, torch.float32) == "first"
    assert choose_layout(wide, 4096, torch.float32, "cuda") == "first"


# -- patterns ---------------------------------------------------------------------------------------------------------


def test_sizes_of_a_pattern() -> None:
    pattern = Pattern(2, 3, 4, 5)
    assert (pattern.rows, pattern.columns, pattern.matrices, pattern.nonzeros) == (30, 40, 10, 120)
    assert pattern.density == pattern.nonzeros / (pattern.rows * pattern.columns)
    assert pattern.movement == pytest.approx(1 / 3 + 1 / 4)
    assert pattern.transposed.shape == (2, 4, 3, 5)
    assert Pattern.parse(str(pattern)) == pattern


def test_patterns_that_are_none_are_refused() -> None:
    with pytest.raises(BadInput, match="b = 0, d = -1"):
        Pattern(1, 0, 2, -1)
    with pytest.raises(BadInput, match=r"c = 2\.0"):
        Pattern(1, 1, 2.0, 1)  # type: ignore[arg-type]
    for text in ("1,2,3", "1,2,3,x", "1;2;3;4", "1,2,3,4,5"):
        with pytest.raises(BadInput, match="is no Kronecker-sparse pattern"):
            Pattern.parse(text)
    with pytest.raises(BadInput, match="at least one factor"):
        parse_chain("")
    with pytest.raises(BadInput, match=r"factor 2 \(6,2,2,3\) gives 36 features and factor 3 \(1,5,7,1\) takes 7"):
        parse_chain("6,2,2,3 6,2,2,3 1,5,7,1")
    with pytest.raises(BadInput, match=r"factor 1.*\n.*factor 2"):
        check_chain([Pattern(1, 2, 3, 4), Pattern(2, 2, 2, 4), Pattern(1, 1, 1, 1)])


# -- layers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", ["6,4,5,2 2,6,6,4", "4,3,5,1", "2,3,2,2 1,5,6,2 1,7,10,1"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_the_product_of_its_factors(chain: str, bias: bool) -> None:
    torch.manual_seed(0)
    layer = KSLinear(parse_chain(chain), bias, dtype=torch.float64)
    matrix = layer.dense()
    assert matrix.shape == (layer.out_features, layer.in_features)
    for shape in ((3,), (2, 4), (), (0,), (2, 0)):
        x = normal(*shape, layer.in_features)
        expected = torch.nn.functional.linear(x, matrix, layer.bias)
        assert torch.allclose(layer(x), expected), shape
        assert layer(x).is_contiguous()
    x = normal(5, layer.in_features)
    last = KSLinear(parse_chain(chain), bias, layout="last", dtype=torch.float64)
    last.load_state_dict(layer.state_dict())
    assert torch.allclose(last(x.t()), layer(x).t())
    assert layer.nonzeros == sum(factor.numel() for factor in layer.factors)
    assert layer.density == pytest.approx(layer.nonzeros / matrix.numel())


@pytest.mark.parametrize("way", ["auto", "strided", "permute", "einsum", "dense"])
def test_a_layer_has_the_gradients_of_its_dense_form(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for layout in LAYOUTS:
        monkeypatch.setattr("burnish.nn.kronecker_sparse.choose_layout", lambda *args, layout=layout: layout)
        torch.manual_seed(0)
        layer = KSLinear(parse_chain("6,4,5,2 2,6,6,4"), algorithm=way, dtype=torch.float64)
        x = normal(2, 3, layer.in_features).requires_grad_()
        parameters = [x, *layer.parameters()]
        expected = torch.nn.functional.linear(x, layer.dense(), layer.bias).square().sum()
        wanted = torch.autograd.grad(expected, parameters)
        found = torch.autograd.grad(layer(x).square().sum(), parameters)
        assert all(torch.allclose(a, b) for a, b in zip(found, wanted, strict=True))


def test_parameters_start_within_the_bounds_that_the_paper_gives() -> None:
    torch.manual_seed(0)
    layer = KSLinear(parse_chain("8,16,9,4 4,9,16,8"))
    for factor in layer.factors:
        bound = factor.shape[2] ** -0.5
        assert 0.99 * bound < factor.abs().max() <= bound
    assert layer.bias is not None
    assert 0.9 * layer.in_features**-0.5 < layer.bias.abs().max() <= layer.in_features**-0.5


def test_weights_keep_their_place_in_memory() -> None:
    layer = KSLinear(parse_chain("6,4,5,2 2,6,6,4"))
    for other in (
        layer,
        copy.deepcopy(layer),
        copy.deepcopy(layer).to(torch.bfloat16),
        KSLinear.of(list(layer.factors)),
    ):
        assert all(factor.permute(0, 3, 1, 2).is_contiguous() for factor in other.factors)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(normal(4, layer.in_features, dtype=torch.float32)).square().sum().backward()
    optimizer.step()
    assert all(factor.permute(0, 3, 1, 2).is_contiguous() for factor in layer.factors)


def test_a_layer_learns_a_product_that_it_can_be() -> None:
    torch.manual_seed(0)
    chain = parse_chain("4,4,4,1 1,4,4,4")
    target = KSLinear(chain, bias=False)
    layer = KSLinear(chain, bias=False)
    x = normal(256, 16, dtype=torch.float32)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.03)
    losses = []
    for _ in range(400):
        loss = (layer(x) - target(x).detach()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 1e-3 * losses[0]


def test_factors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="gives 60 features and factor 2"):
        KSLinear([Pattern(6, 5, 4, 2), Pattern(2, 6, 5, 4)])
    with pytest.raises(BadInput, match="gives 60 features and factor 2"):
        KSLinear.of([normal(6, 5, 4, 2), normal(2, 6, 5, 4)])
    with pytest.raises(BadInput, match=r"the bias has shape \(7,\), and the layer gives 60"):
        KSLinear.of([normal(6, 5, 4, 2)], normal(7))
    with pytest.raises(Unsupported, match="'block'"):
        KSLinear([Pattern(6, 5, 4, 2)], algorithm="block")
    layer = KSLinear([Pattern(6, 5, 4, 2)])
    for shape in ((3, 47), (), (48, 2)):
        with pytest.raises(BadInput, match="takes 48 features"):
            layer(torch.zeros(shape))
    with pytest.raises(BadInput, match="float64"):
        layer(normal(3, 48))


def test_a_state_goes_into_a_model_with_the_same_patterns() -> None:
    torch.manual_seed(0)

    def model() -> torch.nn.Sequential:
        return torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.ReLU(), torch.nn.Linear(30, 8))

    first, again = model(), model()
    first[0] = KSLinear(parse_chain("2,3,4,5"))
    assert chains(first) == {"0": "2,3,4,5"}
    install(again, chains(first))
    again.load_state_dict(first.state_dict())
    x = torch.randn(3, 40)
    assert torch.equal(first(x), again(x))
    for wrong, said in (
        ({"5": "2,3,4,5"}, "no layer 5"),
        ({"1": "2,3,4,5"}, "ReLU"),
        ({"2": "2,3,4,5"}, r"\(8, 30\).*\(30, 40\)"),
    ):
        with pytest.raises(BadInput, match=said):
            install(model(), wrong)


def test_a_hadamard_matrix_is_a_chain_of_butterflies() -> None:
    n = 16
    chain = [Pattern(n // 2 ** (i + 1), 2, 2, 2**i) for i in range(4)]
    two = torch.tensor(hadamard(2), dtype=torch.float64)
    factors = [two[None, :, :, None].expand(pattern.shape) for pattern in chain]
    assert torch.equal(product_of(factors), torch.tensor(hadamard(n), dtype=torch.float64))
    layer = KSLinear.of(factors)
    x = normal(3, n)
    assert torch.allclose(layer(x), x @ torch.tensor(hadamard(n), dtype=torch.float64).t())


def test_a_kronecker_product_is_two_factors() -> None:
    left, right = normal(3, 4), normal(5, 6, seed=1)
    first = right[None, :, :, None].expand(4, 5, 6, 1)  # I ⊗ right
    second = left[None, :, :, None].expand(1, 3, 4, 5)  # left ⊗ I
    assert torch.allclose(product_of([first, second]), torch.kron(left, right))


def test_the_compiled_way_is_offered_where_it_runs_and_refused_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = Pattern(6, 64, 64, 16)
    has = kernels.native() is not None
    assert ("compiled" in offered(pattern, torch.float32, "first")) == has
    assert "compiled" not in offered(pattern, torch.float32, "last")
    assert "compiled" not in offered(pattern, torch.float64, "first")
    assert "compiled" not in offered(Pattern(6, 64, 64, 1), torch.float32, "first")
    with pytest.raises(Unsupported, match="its d is below 8"):
        multiply(torch.ones(1, 8), torch.ones(2, 4, 4, 1), algorithm="compiled")
    monkeypatch.setattr(kernels, "_load", lambda: "burnish-kernels is not installed")
    with pytest.raises(Unsupported, match="burnish-kernels"):
        multiply(torch.ones(1, 64), torch.ones(2, 4, 4, 8), algorithm="compiled")
