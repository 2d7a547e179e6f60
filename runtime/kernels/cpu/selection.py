"""Selection in numpy: operators whose results' shapes only the run tells; each returns its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.selection import selection_axis
from kgrun.runtime.kernels.base import DynamicFunction, on_dynamic
from kgrun.runtime.kernels.cpu.common import is_narrow

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _required(array: Array | None) -> Array:
    assert array is not None
    return array


@on_dynamic("NonZero")
def non_zero(call: OpCall) -> DynamicFunction:
    """Coordinates [rank, count] of the elements that are not zero, row-major; a scalar has none, so [0, count]."""

    def run(inputs: Sequence[Array | None]) -> list[Array]:
        x = _required(inputs[0])
        if x.ndim == 0:
            return [np.empty((0, int(bool(x))), np.int64)]
        return [np.stack(np.nonzero(x)).astype(np.int64, copy=False)]

    return run


@on_dynamic("Compress")
def compress(call: OpCall) -> DynamicFunction:
    """The slices along `axis` (elements of the flattened input without) where the condition holds."""
    axis = selection_axis(call)

    def run(inputs: Sequence[Array | None]) -> list[Array]:
        x, condition = _required(inputs[0]), _required(inputs[1])
        source = x.reshape(-1) if axis is None else x
        return [np.take(source, np.flatnonzero(condition), 0 if axis is None else axis)]

    return run


@on_dynamic("Unique")
def unique(call: OpCall) -> DynamicFunction:
    """The distinct elements, or slices along `axis`; indices of the first of each, the way back, and counts."""
    axis, ordered = selection_axis(call), bool(call.attributes["sorted"])
    count = call.output_count

    def run(inputs: Sequence[Array | None]) -> list[Array]:
        x = _required(inputs[0])
        source, along = (x.reshape(-1), 0) if axis is None else (x, axis)
        # The order of bfloat16 and float8 is that of the float32 numbers they are.
        keys = source.astype(np.float32) if is_narrow(x.dtype) else source
        if axis is not None and keys.size == 0:
            keys = np.zeros(keys.shape[axis], np.int8)  # slices of nothing are alike
        _, first, inverse, counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True, axis=along if keys.ndim > 1 else None
        )
        inverse = inverse.reshape(-1)
        if not ordered:
            order = np.argsort(first)
            ranks = np.empty_like(order)
            ranks[order] = np.arange(order.size)
            first, inverse, counts = first[order], ranks[inverse], counts[order]
        results = [np.take(source, first, along), *(part.astype(np.int64) for part in (first, inverse, counts))]
        return results[:count]

    return run


@on_dynamic("NonMaxSuppression")
def non_max_suppression(call: OpCall) -> DynamicFunction:
    """Rows [batch, class, box] of the boxes that no better box of their class overlaps by more than a threshold."""
    centered = bool(call.attributes["center_point_box"])

    def scalar(inputs: Sequence[Array | None], index: int) -> Any:
        found = inputs[index] if index < len(inputs) else None
        return found.reshape(-1)[0] if found is not None and found.size else None

    def run(inputs: Sequence[Array | None]) -> list[Array]:
        boxes, scores = _required(inputs[0]), _required(inputs[1])
        most, overlap, least = (scalar(inputs, index) for index in (2, 3, 4))
        rows = []
        for batch in range(scores.shape[0]) if most is not None and most > 0 else ():
            corners = _corners(boxes[batch], centered)
            for kind in range(scores.shape[1]):
                kept = _suppressed(corners, scores[batch, kind], int(most), overlap or 0, least)
                rows.append(np.stack([np.full_like(kept, batch), np.full_like(kept, kind), kept], 1))
        return [np.concatenate(rows) if rows else np.empty((0, 3), np.int64)]

    return run


def _corners(boxes: Array, centered: bool) -> Array:
    """Lower corners then upper ones, [boxes, 2, 2]."""
    pairs = boxes.reshape(-1, 2, 2)
    if centered:
        middle, half = pairs[:, 0], pairs[:, 1] / 2
        return np.stack([middle - half, middle + half], 1)
    return np.sort(pairs, 1)


def _suppressed(corners: Array, scores: Array, most: int, overlap: float, least: float | None) -> Array:
    """Indices of the boxes kept, best first; equal scores in their order. One pass over the rest for each box kept."""
    left = np.argsort(-scores, kind="stable")
    if least is not None:
        left = left[scores[left] > least]
    areas = np.prod(corners[:, 1] - corners[:, 0], 1)
    kept: list[int] = []
    while left.size and len(kept) < most:
        best, left = left[0], left[1:]
        kept.append(int(best))
        lower, upper = np.maximum(corners[left, 0], corners[best, 0]), np.minimum(corners[left, 1], corners[best, 1])
        shared = np.prod(np.maximum(upper - lower, 0), 1)
        union = areas[left] + areas[best] - shared
        real = (shared > 0) & (areas[left] > 0) & (areas[best] > 0) & (union > 0)
        left = left[~(real & (shared / np.where(real, union, 1) > overlap))]
    return np.array(kept, np.int64)
