"""Second moments of a layer's inputs, and the triangular factors that the rounding loops need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.core.errors import BadInput

RETRIES = 50
"""Times that the damping is raised before a matrix is called hopeless."""


PANEL = 384
"""Rows of a second moment that are computed by one product."""


class Gram:
    """Accumulates ``sum x x'`` over calibration tokens, in float64 between batches.

    The matrix is symmetric, so only panels on and above its diagonal are computed.

    Args:
        width: Features of x.
        device: Where the sums are kept.
    """

    def __init__(self, width: int, device: torch.device | str = "cpu") -> None:
        self.total = torch.zeros(width, width, dtype=torch.float64, device=device)
        self.tokens = 0

    def add(self, x: Tensor) -> None:
        """Add a batch of shape (..., width)."""
        flat = x.detach().reshape(-1, x.shape[-1]).float()
        for begin in range(0, flat.shape[1], PANEL):
            self.total[begin : begin + PANEL, begin:] += flat[:, begin : begin + PANEL].T @ flat[:, begin:]
        self.tokens += len(flat)

    def mean(self) -> Tensor:
        """(width, width): the average over tokens, exactly symmetric."""
        upper = self.total.triu()
        return (upper + upper.triu(1).T) / max(self.tokens, 1)


@dataclass(frozen=True)
class Factor:
    """U, upper triangular, with ``H⁻¹ = U' U`` for the damped H.

    Attributes:
        upper: (n, n) or (heads, n, n), float64.
        damping: The fraction of the mean diagonal that was added (the largest over heads).
        note: What was unusual, in words; empty when nothing was.
    """

    upper: Tensor
    damping: float
    note: str = ""


def factor(hessian: Tensor, damping: float = 0.01) -> Factor:
    """Damp and factorize one Hessian, or one for each head.

    A zero on the diagonal (a feature that calibration never used) becomes a one on its own, so that the feature neither
    gives nor takes compensation. If the factorization fails, another `damping` of the mean diagonal is added, as often
    as needed, and said in the note.

    Args:
        hessian: (n, n) or (heads, n, n), symmetric.
        damping: Fraction of the mean diagonal to add.

    Raises:
        BadInput: the matrix holds NaN or infinity.
    """
    many = hessian if hessian.dim() == 3 else hessian[None]
    if not torch.isfinite(many).all():
        raise BadInput("a Hessian is not finite", "the calibration text or the weights hold NaN or infinity")
    uppers, most, dead = [], 0.0, 0
    for one in many:
        upper, used, unused = _factor(one, damping)
        uppers.append(upper)
        most, dead = max(most, used), max(dead, unused)
    notes = []
    if dead:
        notes.append(f"{dead} of {many.shape[-1]} inputs are always zero")
    if most > damping * 1.5:
        notes.append(f"not positive definite: damping raised from {damping:g} to {most:g}")
    stacked = torch.stack(uppers)
    return Factor(stacked if hessian.dim() == 3 else stacked[0], most, "; ".join(notes))


def damp(hessian: Tensor, damping: float) -> Tensor:
    """The Hessian with a fraction of its mean diagonal added, and ones where the diagonal is zero.

    Args:
        hessian: (n, n) or (heads, n, n).
        damping: Fraction of the mean diagonal.
    """
    damped = hessian.clone()
    diagonal = damped.diagonal(dim1=-2, dim2=-1)
    dead = diagonal <= 0
    diagonal += damping * diagonal.mean(-1, keepdim=True)
    diagonal[dead] = 1.0
    return damped


def _factor(hessian: Tensor, damping: float) -> tuple[Tensor, float, int]:
    work = hessian.to("cpu", torch.float64).clone()
    diagonal = work.diagonal()
    dead = diagonal <= 0
    diagonal[dead] = 0.0
    step = damping * float(diagonal.mean())
    diagonal[dead] = 1.0
    for attempt in range(1, RETRIES + 1):
        damped = work.clone()
        damped.diagonal()[~dead] += attempt * step
        # With J the reversal, J H J = L L' gives H = (J L J)(J L J)', whose inverse factor is upper triangular.
        lower, failed = torch.linalg.cholesky_ex(damped.flip(0, 1))
        if not failed.any():
            eye = torch.eye(len(work), dtype=work.dtype)
            upper = torch.linalg.solve_triangular(lower.flip(0, 1), eye, upper=True)
            if torch.isfinite(upper).all():
                return upper.to(hessian.device), attempt * damping, int(dead.sum())
    raise BadInput(f"a Hessian cannot be factorized, even with {RETRIES * damping:g} of its mean diagonal added")
