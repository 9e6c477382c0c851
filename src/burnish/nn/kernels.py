"""Compiled kernels, where `burnish-kernels` is installed, as operators of torch; none of it is needed.

`pip install burnish-kernels` (or `./kernels` of a clone) brings them; `BURNISH_KERNELS=0` leaves them out,
and `BURNISH_KERNELS=baseline` or another build's name takes that one. Every caller has a path
in plain torch that gives the same numbers up to the order of sums. They run on the CPU in float32 and do not differentiate.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

ZERO_KINDS = ("middle", "integer", "offset")
"""What a group's zero is: the middle of the codes, an integer code, or a number that is added; in the library's order."""


@dataclass(frozen=True)
class Library:
    """The loaded library.

    Attributes:
        functions: Its plain C functions.
        instructions: The build that runs here: "avx512", "avx2" or "baseline".
    """

    functions: ctypes.CDLL
    instructions: str


class Packed(ctypes.Structure):
    """The library's view of a packed weight matrix; it owns nothing."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("words", "scale", "zero", "bias")),
        *((name, ctypes.c_int32) for name in ("rows", "columns", "bits", "group", "kind")),
    )


class Layer(ctypes.Structure):
    """The library's view of a transformer block."""

    _fields_ = (
        *((role, Packed) for role in ("q", "k", "v", "o", "gate", "up", "down")),
        *((name, ctypes.c_void_p) for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm")),
        *((name, ctypes.c_void_p) for name in ("attention_out", "mlp_out", "keys", "values")),
        *((name, ctypes.c_int32) for name in ("window", "rope")),
    )


class Decoder(ctypes.Structure):
    """The library's view of a decoder-only transformer."""

    _fields_ = (
        ("layers", ctypes.POINTER(Layer)),
        *((name, ctypes.POINTER(Packed)) for name in ("embedding", "head")),
        ("final_norm", ctypes.c_void_p),
        *((name, ctypes.c_float) for name in ("eps", "scaling", "embedding_scale")),
        *((name, ctypes.c_int32) for name in ("count", "hidden", "inner", "query_heads", "key_heads", "width")),
        *((name, ctypes.c_int32) for name in ("activation", "capacity")),
    )


class Step(ctypes.Structure):
    """What one step reads and writes."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("tokens", "input", "slots", "places", "first", "cosines", "sines")),
        *((name, ctypes.c_void_p) for name in ("logits", "hidden")),
        *((name, ctypes.c_int32) for name in ("rows", "threads")),
    )


class Turn(ctypes.Structure):
    """The library's view of a Kronecker product, and of the grid after it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("left", "right")),
        *((name, ctypes.c_int32) for name in ("l", "r", "bits")),
        *((name, ctypes.c_float) for name in ("high", "low")),
    )


@cache
def _load() -> Library | str:
    """The library, or why there is none."""
    asked = os.environ.get("BURNISH_KERNELS", "")
    if asked == "0":
        return "BURNISH_KERNELS=0 leaves burnish-kernels out"
    try:
        import burnish_kernels
    except ImportError:
        return "burnish-kernels is not installed (pip install ./kernels of a clone)"
    try:
        functions, instructions = burnish_kernels.load(_openmp(), asked or None)
    except OSError as error:
        return f"burnish-kernels cannot be loaded: {error}"
    pointer, number, long = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    sizes = [number] * 4
    functions.burnish_linear.argtypes = [ctypes.POINTER(Packed), pointer, long, pointer, long, number, number]
    functions.burnish_step.argtypes = [ctypes.POINTER(Decoder), ctypes.POINTER(Step)]
    functions.burnish_rows.argtypes = [ctypes.POINTER(Packed), pointer, number, pointer]
    functions.burnish_kronecker_sparse.argtypes = [pointer, pointer, pointer, pointer, long, *sizes, number]
    functions.burnish_kronecker_turn.argtypes = [ctypes.POINTER(Turn), pointer, pointer, long, number]
    for name in ("linear", "step", "rows", "kronecker_sparse", "kronecker_turn"):
        getattr(functions, f"burnish_{name}").restype = None
    return Library(functions, instructions)


def native() -> Library | None:
    """The library, or None where it is not installed, switched off or not for this machine: `why_not` tells."""
    found = _load()
    return found if isinstance(found, Library) else None


def why_not() -> str:
    """Why there is no library, for people; empty if there is one."""
    found = _load()
    return "" if isinstance(found, Library) else found


def _openmp() -> Path | None:
    """The OpenMP runtime that torch has brought into this process: a second one would fight it over the cores."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = (Path(line.split(maxsplit=5)[5]) for line in lines if "libgomp" in line)
    return next(found, None)


def path_taken() -> str:
    """Which path runs, for people: "compiled kernels (avx2)" or "plain torch"."""
    found = native()
    return "plain torch" if found is None else f"compiled kernels ({found.instructions})"


def apply_packed(x: Tensor, view: Packed) -> Tensor:
    """The product itself, without torch's dispatcher: for layers that are neither compiled nor traced.

    Args:
        x: (rows, inputs) float32, on the CPU.
        view: Of the weight.
    """
    found = native()
    assert found is not None
    x = x.contiguous()
    rows, inputs = x.shape
    y = torch.empty(rows, view.rows, dtype=torch.float32, device="cpu")
    found.functions.burnish_linear(
        ctypes.byref(view), x.data_ptr(), inputs, y.data_ptr(), view.rows, rows, torch.get_num_threads()
    )
    return y


@torch.library.custom_op("burnish::packed_linear", mutates_args=())
def packed_linear(
    x: Tensor, words: Tensor, scale: Tensor, zero: Tensor | None, bias: Tensor | None, bits: int, group: int, kind: int
) -> Tensor:
    """``x Wᵀ + bias`` with packed weights (`burnish.nn.packed`).

    Args:
        x: (rows, inputs) float32, on the CPU.
        words: (panels, units, bits, 16) int32.
        scale: (panels, groups, 16) float16.
        zero: The same, where `kind` is not 0.
        bias: (outputs,) float32. Its length is the number of outputs, so a layer without bias passes zeros.
        bits: Bits of a code.
        group: Inputs that share a scale.
        kind: Index into `ZERO_KINDS`.

    Returns:
        (rows, outputs) float32.
    """
    assert bias is not None
    view = Packed(
        words.data_ptr(),
        scale.data_ptr(),
        None if zero is None else zero.data_ptr(),
        bias.data_ptr(),
        *(len(bias), x.shape[1], bits, group, kind),
    )
    return apply_packed(x, view)


@packed_linear.register_fake
def _(
    x: Tensor, words: Tensor, scale: Tensor, zero: Tensor | None, bias: Tensor, bits: int, group: int, kind: int
) -> Tensor:
    return x.new_empty(len(x), len(bias))


def runs_here(*tensors: Tensor | None) -> bool:
    """Whether the library is there and takes these tensors: float32, on the CPU, no gradient wanted."""
    given = [tensor for tensor in tensors if tensor is not None]
    if any(tensor.device.type != "cpu" or tensor.dtype != torch.float32 for tensor in given):
        return False
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return False
    return native() is not None


def apply_kronecker_sparse(x: Tensor, weight: Tensor) -> Tensor:
    """As `kronecker_sparse`, without torch's dispatcher: for what is neither compiled nor traced."""
    found = native()
    assert found is not None
    x = x.contiguous()
    a, b, c, d = weight.shape
    y = torch.empty(len(x), a * b * d, dtype=torch.float32, device="cpu")
    strides = (ctypes.c_int64 * 4)(*weight.stride())
    found.functions.burnish_kronecker_sparse(
        x.data_ptr(), weight.data_ptr(), strides, y.data_ptr(), len(x), a, b, c, d, torch.get_num_threads()
    )
    return y


@torch.library.custom_op("burnish::kronecker_sparse", mutates_args=())
def kronecker_sparse(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply by a Kronecker-sparse matrix with the batch first (`burnish.nn.kronecker_sparse`); nothing is permuted.

    Args:
        x: (batch, a c d) float32, on the CPU.
        weight: (a, b, c, d), in any arrangement.

    Returns:
        (batch, a b d).
    """
    return apply_kronecker_sparse(x, weight)


@kronecker_sparse.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    a, b, _, d = weight.shape
    return x.new_empty(len(x), a * b * d)


@torch.library.custom_op("burnish::kronecker_turn", mutates_args=())
def kronecker_turn(
    x: Tensor, left: Tensor | None, right: Tensor | None, size: list[int], bits: int, high: float, low: float
) -> Tensor:
    """Multiply by a Kronecker product L ⊗ R, and put each row on a symmetric grid, in one pass over memory.

    Args:
        x: (rows, l r) float32, on the CPU.
        left: (l, l), or None for the identity.
        right: (r, r), or None.
        size: (l, r), of the matrix that a row of `x` is read as.
        bits: Of the grid; 16 for none.
        high: Fraction of a row's highest value that the grid keeps.
        low: Of its lowest.

    Returns:
        (rows, l r).
    """
    found = native()
    assert found is not None
    x = x.contiguous()
    factors = [None if factor is None else factor.contiguous() for factor in (left, right)]
    y = torch.empty_like(x)
    pointers = [None if factor is None else factor.data_ptr() for factor in factors]
    turn = Turn(*pointers, *size, bits, high, low)
    found.functions.burnish_kronecker_turn(
        ctypes.byref(turn), x.data_ptr(), y.data_ptr(), len(x), torch.get_num_threads()
    )
    return y


@kronecker_turn.register_fake
def _(
    x: Tensor, left: Tensor | None, right: Tensor | None, size: list[int], bits: int, high: float, low: float
) -> Tensor:
    return torch.empty_like(x)
