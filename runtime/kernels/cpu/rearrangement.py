"""Rearrangement in numpy: permuted views, and indices worked out when the graph is lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.rearrangement import block_layout, centre_amounts, diagonal
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.movement import constant_pad

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _required(array: Array | None) -> Array:
    assert array is not None
    return array


@on_cpu("DepthToSpace", "SpaceToDepth")
def blocks(call: OpCall) -> HostFunction:
    """Blocks of pixels moved between channels and places."""
    split, permutation = block_layout(call)
    joined = tuple(split[axis] for axis in permutation)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        np.copyto(outputs[0].reshape(joined), _required(inputs[0]).reshape(split).transpose(permutation))

    return run


@on_cpu("CenterCropPad")
def center_crop_pad(call: OpCall) -> HostFunction:
    """The centre of input 0, or input 0 in the centre of zeros."""
    return constant_pad(call.input(0).shape, centre_amounts(call), 0)


@on_cpu("ReverseSequence")
def reverse_sequence(call: OpCall) -> HostFunction:
    """The first elements of every sequence in reverse, as many as its length says; GraphError for a longer one."""
    batch, time = call.attributes["batch_axis"], call.attributes["time_axis"]
    steps = call.input(0).shape[time]
    rest = (1,) * (len(call.input(0).shape) - 2)
    at = np.arange(steps)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        lengths = _required(inputs[1])
        wrong = lengths[(lengths < 0) | (lengths > steps)]
        if wrong.size:
            raise GraphError(f"{call.node}: a sequence of {wrong[0]} in {steps} steps", code="KG333")
        last = lengths[:, None] - 1
        places = np.where(at <= last, last - at, at)
        places = places if batch == 0 else places.T
        places = places.reshape(places.shape + rest)
        np.copyto(outputs[0], np.take_along_axis(_required(inputs[0]), places, time))

    return run


@on_cpu("Trilu")
def trilu(call: OpCall) -> HostFunction:
    """The upper or lower triangle of every matrix, zeros elsewhere."""
    rows, columns = call.input(0).shape[-2:]
    lower = np.tri(rows, columns, diagonal(call) - bool(call.attributes["upper"]), bool)
    gone = lower if call.attributes["upper"] else ~lower

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        source, out = _required(inputs[0]), outputs[0]
        np.copyto(out, source)
        np.copyto(out, out.dtype.type(0), where=gone)

    return run
