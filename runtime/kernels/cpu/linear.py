"""MatMul and Gemm in numpy (BLAS for float32 and float64); float16 and bfloat16 are multiplied in float32.

Operands are handed to BLAS as they lie, transposed by strides at most, so that which routine runs depends on layout
and never on an address: a plan that moves a tensor changes no bit of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import is_narrow

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _operand(array: Array | None, turned: bool = False) -> Array:
    """The operand as the operator means it; what is widened lies in that order, as if it had never been turned."""
    assert array is not None
    array = array.swapaxes(-1, -2) if turned else array
    return array.astype(np.float32, order="C") if is_narrow(array.dtype) else array


@on_cpu("MatMul")
def matmul(call: OpCall) -> HostFunction:
    """numpy's matmul; a batch of matrices times one matrix becomes a single product."""
    a, b = call.input(0).shape, call.input(1).shape
    narrow = compute_dtype(call.input(0).dtype) != call.input(0).dtype
    turned = [i in call.turned for i in (0, 1)]
    joined, rows = len(a) > 2 and len(b) == 2 and (narrow or not turned[0]), prod(a[:-1])

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        (left, right), out = (_operand(x, turn) for x, turn in zip(inputs, turned, strict=True)), outputs[0]
        if joined:
            left, out = left.reshape(rows, a[-1]), out.reshape(rows, b[-1])
        if narrow or out.ndim == 0:
            np.copyto(out, np.matmul(left, right), casting="unsafe")
        else:
            np.matmul(left, right, out=out)

    return run


@on_cpu("Gemm")
def gemm(call: OpCall) -> HostFunction:
    """alpha · A B + beta · C."""
    alpha, beta = call.attributes["alpha"], call.attributes["beta"]
    flips = (call.attributes["transA"], call.attributes["transB"])
    turned = [i in call.turned for i in (0, 1)]
    whole = compute_dtype(call.input(0).dtype) not in ("float32", "float64")

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        a, b = (_operand(x, turn) for x, turn in zip(inputs, turned, strict=False))
        a, b = (x.T if flip else x for x, flip in zip((a, b), flips, strict=True))
        out = outputs[0]
        direct = out.dtype == a.dtype and not whole
        product = np.matmul(a, b, out=out) if direct else np.matmul(a, b)
        added = _operand(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else None
        if alpha != 1:
            product = np.multiply(product, alpha, out=product if direct else None)
        if added is not None:
            term = added if beta == 1 else added * beta
            product = np.add(product, term, out=product if direct else None)
        if not direct:
            np.copyto(out, product, casting="unsafe")

    return run
