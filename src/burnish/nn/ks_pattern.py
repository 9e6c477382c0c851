"""Kronecker-sparse patterns: where such a matrix may differ from zero, and which of them can follow one another.

The pattern (a, b, c, d) is the support I_a ⊗ 1_{b×c} ⊗ I_d: a matrix of abd rows and acd columns with abcd numbers, which
are kept as a tensor W of shape (a, b, c, d). Row (i, j, l) and column (i', k, l') hold W[i, j, k, l] where i = i' and
l = l', and 0 elsewhere. So it is a·d independent products by b × c matrices, whose inputs and outputs lie d apart. Low-rank,
block-diagonal, Monarch and butterfly matrices are products of one to log n of these.

Products are listed in the order in which they are applied, which in writing is from right to left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise

from torch import Tensor

from burnish.core.errors import BadInput


@dataclass(frozen=True, order=True)
class Pattern:
    """The support I_a ⊗ 1_{b×c} ⊗ I_d.

    Attributes:
        a: Blocks along the diagonal.
        b: Rows of each small matrix.
        c: Columns of each small matrix.
        d: How far apart the entries of a small matrix lie.

    Raises:
        BadInput: a size that is no positive integer.
    """

    a: int
    b: int
    c: int
    d: int

    def __post_init__(self) -> None:
        sizes = {field.name: getattr(self, field.name) for field in fields(self)}
        wrong = [
            f"{name} = {size!r}"
            for name, size in sizes.items()
            if not isinstance(size, int) or isinstance(size, bool) or size < 1
        ]
        if wrong:
            said = ", ".join(str(size) for size in sizes.values())
            raise BadInput(f"({said}) is no Kronecker-sparse pattern: {', '.join(wrong)}", "give 4 positive integers")

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read "a,b,c,d".

        Raises:
            BadInput: it has another form.
        """
        parts = text.split(",")
        try:
            sizes = [int(part) for part in parts]
        except ValueError:
            sizes = []
        if len(sizes) != 4:
            raise BadInput(
                f"{text!r} is no Kronecker-sparse pattern", "give 4 integers a,b,c,d, for example 1,64,24,24"
            )
        return cls(*sizes)

    def __str__(self) -> str:
        return ",".join(map(str, self.shape))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """That of the weight: (a, b, c, d)."""
        return self.a, self.b, self.c, self.d

    @property
    def rows(self) -> int:
        """Outputs: a·b·d."""
        return self.a * self.b * self.d

    @property
    def columns(self) -> int:
        """Inputs: a·c·d."""
        return self.a * self.c * self.d

    @property
    def matrices(self) -> int:
        """How many small matrices there are: a·d."""
        return self.a * self.d

    @property
    def nonzeros(self) -> int:
        """Numbers that it holds: a·b·c·d."""
        return self.matrices * self.b * self.c

    @property
    def density(self) -> float:
        """The share of the matrix that may differ from zero: 1 / (a·d)."""
        return 1 / self.matrices

    @property
    def movement(self) -> float:
        """The paper's h(b, c) = (b + c) / (b c): numbers read and written for each multiplication."""
        return (self.b + self.c) / (self.b * self.c)

    @property
    def transposed(self) -> Pattern:
        """The pattern of the transposed matrix."""
        return Pattern(self.a, self.c, self.b, self.d)


def check_chain(patterns: Sequence[Pattern]) -> None:
    """Refuse a product whose factors do not fit together.

    Args:
        patterns: In the order in which they are applied.

    Raises:
        BadInput: no factors, or each pair of neighbours whose sizes differ, with the sizes.
    """
    if not patterns:
        raise BadInput("a product of Kronecker-sparse factors needs at least one factor")
    faults = [
        f"factor {number} ({first}) gives {first.rows} features and factor {number + 1} ({second}) takes {second.columns}"
        for number, (first, second) in enumerate(pairwise(patterns), 1)
        if first.rows != second.columns
    ]
    if faults:
        raise BadInput.of(
            "the factors do not fit together",
            faults,
            "list them in the order in which they are applied; each a·b·d is the next a·c·d",
        )


def parse_chain(text: str) -> tuple[Pattern, ...]:
    """Read patterns "a,b,c,d a,b,c,d …", in the order in which they are applied.

    Raises:
        BadInput: a pattern of another form, or factors that do not fit together.
    """
    found = tuple(Pattern.parse(part) for part in text.split())
    check_chain(found)
    return found


def pattern_of(weight: Tensor) -> Pattern:
    """The pattern of a weight of shape (a, b, c, d).

    Raises:
        BadInput: it has another number of dimensions, or an empty one.
    """
    if weight.ndim != 4:
        raise BadInput(f"a Kronecker-sparse weight has shape (a, b, c, d), and this has {tuple(weight.shape)}")
    return _pattern(*weight.shape)


_pattern = lru_cache(maxsize=1024)(Pattern)  # asked for at every product


def as_stored(weight: Tensor) -> Tensor:
    """The same weight, (a, b, c, d), lying in memory as (a, d, b, c): each small matrix in one piece, as BLAS wants it."""
    return weight.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)


def dense(weight: Tensor) -> Tensor:
    """The whole matrix, (a·b·d, a·c·d), of a weight (a, b, c, d); gradients pass."""
    pattern = pattern_of(weight)
    a, b, c, d = pattern.shape
    whole = weight.new_zeros(a, b, d, a, c, d)
    # The entries that may differ from zero: (b, c, a, d), once the two equal pairs of indices are one each.
    whole.diagonal(0, 0, 3).diagonal(0, 1, 3).copy_(weight.permute(1, 2, 0, 3))
    return whole.reshape(pattern.rows, pattern.columns)
