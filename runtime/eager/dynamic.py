"""Operators whose results tell their shapes: run on the host, whatever the device, and brought back (S82)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kgrun.graphs.bind.tensors import check_declared
from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import DeviceFault, GraphError, KgrunError
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.eager.store import Tensor
from kgrun.runtime.program import MemoryClass

if TYPE_CHECKING:
    from kgrun.runtime.eager.body import NodeProgram
    from kgrun.runtime.eager.executor import Executor
    from kgrun.runtime.eager.frame import Frame


def run_dynamic(
    executor: Executor, frame: Frame, program: NodeProgram, inputs: list[Tensor | None]
) -> list[Tensor | None]:
    """The outputs with the shapes that they turned out to have, None for those that nobody names.

    Raises:
        DeviceFault: KG610 where the operator fails.
    """
    assert program.dynamic is not None
    store, node = executor.store, program.node
    start = executor.device.record()
    arrays = [None if tensor is None else store.download(tensor) for tensor in inputs]
    try:
        with np.errstate(all="ignore"):
            made = program.dynamic(arrays)
    except (KgrunError, MemoryError):
        raise
    except Exception as error:
        raise DeviceFault(f"{node.name!r} failed: {error}", code="KG610") from error
    outputs: list[Tensor | None] = []
    for name, kind, array in zip(node.outputs, program.types, made, strict=False):
        if name is None or kind is None:
            outputs.append(None)
            continue
        exact = np.ascontiguousarray(array, numpy_dtype(kind.dtype)).reshape(array.shape)
        _check_declared(frame, name, TensorType(kind.dtype, exact.shape), node.name)
        memory_class = MemoryClass.OUTPUT if name in frame.body.outputs else MemoryClass.INTERMEDIATE
        block = store.promised(frame.path + name, exact, memory_class)
        store.address(block)
        outputs.append(Tensor(TensorType(kind.dtype, exact.shape), block))
    executor.recorder.on_host(frame, program, inputs, outputs, start, executor.device.record())
    return outputs


def _check_declared(frame: Frame, name: str, kind: TensorType, writer: str) -> None:
    """GraphError KG352 where the result contradicts `shape`, `dtype` or `max_shape` of the file."""
    body = frame.body
    check_declared(body.graph, name, kind, body.dims, writer)
    spec = body.graph.tensors.get(name)
    if spec is None or spec.max_shape is None:
        return
    most = tuple(body.extent(entry) for entry in spec.max_shape)
    if len(most) != len(kind.shape) or any(extent > limit for extent, limit in zip(kind.shape, most, strict=True)):
        raise GraphError(
            f"{name!r} has shape {list(kind.shape)}, beyond its max_shape {list(most)}",
            code="KG352",
            where=body.graph.place("tensors", name, "max_shape"),
        )
