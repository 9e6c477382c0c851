"""The nearest products of Kronecker-sparse factors: exact where there is one, best where that can be shown, fitted to outputs."""

from __future__ import annotations

import sys

import pytest
import torch
from scipy.linalg import hadamard
from torch import Tensor

from burnish.core.errors import BadInput
from burnish.nn.kronecker_sparse import product_of
from burnish.nn.ks_pattern import Pattern, dense, parse_chain
from burnish.nn.ks_project import low_rank_error, merged, nearest_pair, pairs, project, rank, refit

CHAINS = [
    "24,24,24,1 1,24,24,24",  # Monarch
    "1,3,7,1 1,9,3,1",  # low rank
    "4,6,5,1 1,7,8,3",  # blocks of rank 2
    "6,4,3,2 2,5,6,4",  # neither end is the identity's
    "8,2,2,1 4,2,2,2 2,2,2,4 1,2,2,8",  # butterfly
    "4,4,3,1 2,6,4,2 1,5,4,6",  # three factors of unequal sizes, rank 2
]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def error(matrix: Tensor, factors: list[Tensor]) -> float:
    return float((product_of(factors) - matrix).square().sum() / matrix.square().sum())


@pytest.mark.parametrize("chain", CHAINS)
def test_a_product_of_known_factors_is_found_again(chain: str) -> None:
    known = parse_chain(chain)
    matrix = product_of([normal(*pattern.shape, seed=number) for number, pattern in enumerate(known)])
    found = project(matrix, known)
    assert [tuple(factor.shape) for factor in found] == [pattern.shape for pattern in known]
    assert error(matrix, found) < 1e-24
    # The support of the product is the pattern that `merged` says.
    whole = known[0]
    for pattern in known[1:]:
        whole = merged(whole, pattern)
    assert torch.equal(matrix != 0, dense(torch.ones(whole.shape)) != 0)


def test_well_known_transforms_are_found_exactly() -> None:
    n = 32
    butterflies = [Pattern(n // 2 ** (i + 1), 2, 2, 2**i) for i in range(5)]
    matrix = torch.tensor(hadamard(n), dtype=torch.float64)
    assert error(matrix, project(matrix, butterflies)) < 1e-24
    left, right = normal(6, 4), normal(5, 7, seed=1)
    chain = [Pattern(4, 5, 7, 1), Pattern(1, 6, 4, 5)]
    assert error(torch.kron(left, right), project(torch.kron(left, right), chain)) < 1e-24
    three = torch.kron(torch.kron(normal(2, 3), normal(4, 2, seed=2)), normal(3, 5, seed=3))
    chain = [Pattern(6, 3, 5, 1), Pattern(3, 4, 2, 3), Pattern(1, 2, 3, 12)]
    assert error(three, project(three, chain)) < 1e-24


def test_two_factors_are_the_best_ones() -> None:
    matrix = normal(24, 20)
    chain = parse_chain("5,6,4,1 1,8,10,3")
    assert rank(*chain) == 2
    found = project(matrix, chain)
    # The error is what each block's smaller singular values say ...
    blocks = matrix.reshape(8, 3, 5, 4).permute(2, 1, 0, 3)
    cut = torch.linalg.svdvals(blocks)[..., 2:].square().sum() / matrix.square().sum()
    assert error(matrix, found) == pytest.approx(float(cut))
    # ... and no step from there makes it smaller.
    factors = [factor.clone().requires_grad_() for factor in found]
    loss = (product_of(factors) - matrix).square().sum()
    assert all(gradient.abs().max() < 1e-9 for gradient in torch.autograd.grad(loss, factors))
    again = [normal(*pattern.shape, seed=9 + number) for number, pattern in enumerate(chain)]
    for _ in range(50):  # alternating least squares from elsewhere: as good at best
        again = refit(matrix, again, torch.eye(20, dtype=torch.float64), damping=1e-9)
        flipped = refit(matrix.t(), [f.transpose(1, 2) for f in again[::-1]], torch.eye(24, dtype=torch.float64), 1e-9)
        again = [f.transpose(1, 2) for f in flipped[::-1]]
    assert error(matrix, again) == pytest.approx(error(matrix, found), rel=1e-3)


def test_more_factors_lose_no_more_than_the_sum_of_the_cuts() -> None:
    n = 16
    chain = [Pattern(n // 2 ** (i + 1), 2, 2, 2**i) for i in range(4)]
    matrix = torch.tensor(hadamard(n), dtype=torch.float64) + 0.1 * normal(n, n)
    found = error(matrix, project(matrix, chain))
    # Each way to cut the chain in two bounds the best error from below; the squares of all cuts bound what is found.
    cuts = []
    for end in range(1, 4):
        first, second = chain[0], chain[end]
        for pattern in chain[1:end]:
            first = merged(first, pattern)
        for pattern in chain[end + 1 :]:
            second = merged(second, pattern)
        cuts.append(error(matrix, project(matrix, [first, second])))
    assert max(cuts) <= found <= sum(cuts)


def test_neighbouring_factors_are_of_one_size_and_zero_stays_zero() -> None:
    found = project(1e6 * normal(24, 24), parse_chain("4,4,6,1 1,6,4,4"))
    first, second = found
    assert torch.allclose(first.square().sum(2).reshape(-1), second.square().sum(1).reshape(-1))
    assert not product_of(project(torch.zeros(24, 24), parse_chain("4,4,6,1 1,6,4,4"))).any()
    # More rank than a block has: the rest of the factors is zero, and nothing is lost.
    wide = parse_chain("2,4,2,1 1,3,4,2")
    matrix = normal(6, 4)
    assert rank(*wide) == 2
    assert error(matrix, project(matrix, wide)) < 1e-24
    wider = parse_chain("2,8,2,1 1,3,8,2")
    assert error(matrix, project(matrix, wider)) < 1e-24


def test_columns_may_count_differently() -> None:
    matrix, scale = normal(24, 20), normal(20, seed=1).abs() + 0.1
    chain = parse_chain("5,3,4,1 1,8,5,3")
    plain, scaled = project(matrix, chain), project(matrix, chain, scale)

    def weighted(factors: list[Tensor]) -> float:
        return error(matrix * scale, [factors[0] * scale.view(5, 1, 4, 1), factors[1]])

    assert weighted(scaled) < 0.95 * weighted(plain)
    assert error(matrix, plain) < error(matrix, scaled)


@pytest.mark.parametrize("chain", ["5,3,4,1 1,8,5,3", "1,24,20,1", "4,6,5,1", "8,2,2,1 4,2,2,2 2,2,2,4 1,2,2,8"])
def test_the_last_factor_is_fitted_to_the_output(chain: str) -> None:
    known = parse_chain(chain)
    matrix = normal(known[-1].rows, known[0].columns)
    inputs = normal(200, known[0].columns, seed=1) @ normal(known[0].columns, known[0].columns, seed=2)
    hessian = inputs.t() @ inputs

    def lost(factors: list[Tensor]) -> float:
        return float(((product_of(factors) - matrix) @ inputs.t()).square().sum())

    before = project(matrix, known)
    after = refit(matrix, before, hessian, damping=1e-12)
    assert lost(after) <= lost(before) + 1e-12 * float(matrix.square().sum())
    if len(known) > 1:
        assert lost(after) < 0.97 * lost(before)
    last = after[-1].clone().requires_grad_()
    loss = ((product_of([*after[:-1], last]) - matrix) @ inputs.t()).square().sum()
    assert torch.autograd.grad(loss, last)[0].abs().max() < 1e-6 * float(hessian.diagonal().sum())
    held = refit(matrix, before, hessian, damping=1e9)
    assert torch.allclose(held[-1], before[-1], atol=1e-6)


def test_least_squares_without_enough_tokens_are_finite() -> None:
    chain = parse_chain("5,3,4,1 1,8,5,3")
    matrix = normal(24, 20)
    x = normal(2, 20, seed=1)
    for hessian in (x.t() @ x, torch.zeros(20, 20)):
        assert all(factor.isfinite().all() for factor in refit(matrix, project(matrix, chain), hessian))


# -- which patterns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outputs", "inputs"), [(576, 576), (192, 576), (1536, 576), (576, 1536), (48, 36)])
@pytest.mark.parametrize("density", [0.1, 0.25, 0.5])
def test_pairs_are_within_the_budget_and_make_the_matrix(outputs: int, inputs: int, density: float) -> None:
    if density == 0.1 and inputs == 36:
        density = 0.3
    for first, second in pairs(outputs, inputs, density):
        assert merged(first, second) == Pattern(1, outputs, inputs, 1)
        assert first.nonzeros + second.nonzeros <= density * outputs * inputs
        assert rank(first, second) >= 1


def test_budgets_that_nothing_meets_are_refused() -> None:
    for outputs, inputs, density in ((577, 577, 0.5), (576, 576, 0.001), (7, 576, 0.25)):
        with pytest.raises(BadInput, match=f"{outputs} x {inputs}"):
            pairs(outputs, inputs, density)


def test_the_pattern_that_a_matrix_has_is_the_one_that_is_chosen() -> None:
    known = (Pattern(8, 6, 6, 1), Pattern(1, 8, 8, 6))
    matrix = product_of([normal(*pattern.shape, seed=number) for number, pattern in enumerate(known)])
    density = sum(pattern.nonzeros for pattern in known) / matrix.numel()
    found = nearest_pair(matrix, density)
    assert error(matrix, project(matrix, found)) < 1e-12
    assert sum(pattern.nonzeros for pattern in found) <= density * matrix.numel()


def test_the_error_of_low_rank_is_that_of_its_product() -> None:
    matrix = normal(30, 20)
    kept = int(0.4 * 600 / 50)
    chain = [Pattern(1, kept, 20, 1), Pattern(1, 30, kept, 1)]
    assert low_rank_error(matrix, 0.4) == pytest.approx(error(matrix, project(matrix, chain)), rel=1e-4)


def test_what_cannot_be_found_is_refused_with_its_sizes() -> None:
    with pytest.raises(BadInput, match=r"\(24, 20\), and the patterns .* make \(30, 40\)"):
        project(normal(24, 20), parse_chain("2,3,4,5"))
    with pytest.raises(BadInput, match="cannot be found block by block"):
        project(normal(8, 8), parse_chain("1,2,2,4 4,2,2,1"))
    with pytest.raises(BadInput, match="do not fit together"):
        project(normal(8, 8), [Pattern(1, 2, 2, 4), Pattern(1, 2, 2, 1)])


@pytest.mark.filterwarnings("ignore")  # it warns of optional packages, and uses what NumPy has deprecated
def test_lazylinop_finds_the_same() -> None:
    limit = sys.getrecursionlimit()
    library = pytest.importorskip("lazylinop.butterfly", reason="lazylinop is not installed")
    sys.setrecursionlimit(limit)  # importing it raises the limit for all of the process
    for chain in ("24,24,24,1 1,24,24,24", "4,6,5,1 1,7,8,3", "8,2,2,1 4,2,2,2 2,2,2,4 1,2,2,8"):
        known = parse_chain(chain)
        matrix = normal(known[-1].rows, known[0].columns)
        theirs = library.ksd(matrix.numpy(), library.Chain([pattern.shape for pattern in reversed(known)]))
        factors = [torch.as_tensor(factor) for factor in reversed(theirs.ks_values)]
        ours = error(matrix, project(matrix, known))
        # They too split off the left factor first, so that even a longer chain comes out alike.
        assert ours == pytest.approx(error(matrix, factors), rel=1e-6), chain
