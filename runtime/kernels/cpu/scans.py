"""Scans and TopK in numpy; float16 and bfloat16 are accumulated in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.scans import scan_axis
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_MANY = 4_096  # elements of a row from which it pays to find the k-th one before sorting


@on_cpu("CumSum", "CumProd")
def scan(call: OpCall) -> HostFunction:
    """Running sum or product along an axis, from the back with `reverse`, without the element itself if exclusive."""
    axis, function = scan_axis(call), np.add if call.op == "CumSum" else np.multiply
    turned, exclusive = bool(call.attributes["reverse"]), bool(call.attributes["exclusive"])
    lead = (slice(None),) * axis

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, out = widened(inputs[0]), outputs[0]
        if turned:
            x, out = np.flip(x, axis), np.flip(out, axis)
        if exclusive and x.shape[axis]:
            out[(*lead, slice(1))] = function.identity
            x, out = x[(*lead, slice(-1))], out[(*lead, slice(1, None))]
        with np.errstate(all="ignore"):
            out[...] = function.accumulate(x, axis, dtype=x.dtype)

    return run


@on_cpu("TopK")
def top_k(call: OpCall) -> HostFunction:
    """The `k` largest (smallest) elements of every line in order, and their indices."""
    axis, largest = scan_axis(call), bool(call.attributes["largest"])
    count, size = call.outputs[0].shape[axis], call.input(0).shape[axis]
    few = size >= _MANY and 0 < 8 * count < size

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if outputs[0].size == 0:
            return
        x = widened(inputs[0])
        lines = np.moveaxis(x, axis, -1)
        if few:
            flat = lines.reshape(-1, size)
            rows = [_first_of_row(row, count, largest) for row in flat]
            found = np.stack(rows).reshape(*lines.shape[:-1], count)
        else:
            found = _order(lines, largest)[..., :count]
        indices = np.moveaxis(found, -1, axis)
        source = inputs[0]
        assert source is not None
        np.copyto(outputs[0], np.take_along_axis(source, indices, axis))
        np.copyto(outputs[1], indices)

    return run


def _order(lines: Array, largest: bool) -> Array:
    """Indices that sort the last axis, the lower index first among equals; a NaN is larger than every number."""
    if not largest:
        return np.argsort(lines, -1, kind="stable")
    order: Array = lines.shape[-1] - 1 - np.argsort(lines[..., ::-1], -1, kind="stable")[..., ::-1]
    return order


def _first_of_row(row: Array, count: int, largest: bool) -> Array:
    """The first `count` of `_order`, found by sorting only what the k-th element does not shut out."""
    edge = row.size - count if largest else count - 1
    bound = np.partition(row, edge)[edge]
    out = row < bound if largest else row > bound
    if bound != bound:  # the k-th is a NaN: among the largest only NaNs are wanted
        out = row == row if largest else np.zeros(row.size, bool)
    elif not largest:
        out |= row != row
    left = np.flatnonzero(~out)
    found: Array = left[_order(row[left], largest)[:count]]
    return found
