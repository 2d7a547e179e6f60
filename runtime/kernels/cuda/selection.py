"""Selection on CUDA: results known at bind time are written as they are; others are made on the host, as arrays."""

from __future__ import annotations

from kgrun.graphs.errors import DeviceUnavailable
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.selection import kept_places, selection_axis
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import target
from kgrun.runtime.kernels.cuda.generators import carry
from kgrun.runtime.kernels.cuda.movement import picked


@on_cuda("NonZero", "Unique", "NonMaxSuppression", "Compress")
def _selected(call: OpCall) -> Lowered:
    work: list[KernelCall] = []
    for index, out in enumerate(call.outputs):
        if out.value is not None:
            work += carry(out, out.value, target(index))
        elif out.size:
            return _compressed(call)
    return Lowered(tuple(work))


def _compressed(call: OpCall) -> Lowered:
    """A Compress with a known condition: its places are carried to scratch, and slices picked there."""
    kept = kept_places(call) if call.op == "Compress" else None
    if kept is None:
        raise DeviceUnavailable(f"{call.op}: the shape of its result is known after the run only", code="KG710")
    source, axis = call.input(0), selection_axis(call)
    if axis is None:
        source, axis = TensorType(source.dtype, (source.size,)), 0
    places, scratch = TensorType("int64", (len(kept),)), Operand("workspace", 0)
    return Lowered((*carry(places, kept, scratch), picked(source, axis, places, scratch)), (places.nbytes,))
