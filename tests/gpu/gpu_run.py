"""Run one launch or one lowered operator on a GPU; what lies between its tensors must stay as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import OpCall
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.kernels.base import Lowered, Operand
from kgrun.runtime.lower.placing import placed
from kgrun.runtime.program import KernelCode, Launch, Pointer, Step, Value, Work
from tests.runtime.kernels.cuda.emulation import array_dtype

Array = np.ndarray[Any, Any]
GUARD = 512
_POISON = 0xCD


class Arena:
    """One allocation with guarded places in it, one a tensor."""

    def __init__(self, device: CudaDevice, sizes: Sequence[int]) -> None:
        self.device = device
        self.sizes = list(sizes)
        self.offsets, at = [], GUARD
        for size in sizes:
            self.offsets.append(at)
            at += -(-size // GUARD) * GUARD + GUARD
        self.nbytes = at
        self.base = device.allocate(at)
        device.fill(self.base, _POISON, at)

    def address(self, pointer: Pointer) -> int:
        return self.base + self.offsets[pointer.buffer] + pointer.offset

    def write(self, buffer: int, array: Array) -> None:
        self.device.upload(self.address(Pointer(buffer)), array)

    def read(self, buffer: int, array: Array) -> Array:
        if array.nbytes:
            self.device.download(self.address(Pointer(buffer)), array)
        return array

    def check_guards(self) -> None:
        whole = np.empty(self.nbytes, np.uint8)
        self.device.download(self.base, whole)
        for offset, size in zip(self.offsets, self.sizes, strict=True):
            whole[offset : offset + size] = _POISON
        wrong = np.flatnonzero(whole != _POISON)
        assert wrong.size == 0, f"bytes written outside of every tensor: {wrong[:8]} of {self.offsets}"

    def close(self) -> None:
        self.device.free(self.base)


def step(work: Work, name: str = "step") -> Step:
    return Step(0, name, 0, name, "compute", work, (), ())


def run_kernel(
    device: CudaDevice,
    source: str,
    args: Sequence[Array | Value | None],
    *,
    entry: str = "k",
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (32,),
    name: str = "k",
    **more: Any,
) -> list[Array]:
    """Launch CUDA C on arrays; the arrays as they are afterwards."""
    arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
    arena = Arena(device, [array.nbytes for array in arrays])
    try:
        for index, array in enumerate(arrays):
            arena.write(index, array)
        places = iter(range(len(arrays)))
        packed = tuple(Pointer(next(places)) if isinstance(arg, np.ndarray) else arg for arg in args)
        language = more.pop("language", "cuda")
        options = tuple(more.pop("options", ()))
        code = KernelCode(source, None, language, f"{name}.cu", entry, options, kernel=name)
        launch = Launch(code, packed, _three(grid), _three(block), **more)
        device.prepare(step(launch, name), arena.address).launch()
        device.synchronize()
        results = [arena.read(index, np.empty_like(array)) for index, array in enumerate(arrays)]
        arena.check_guards()
        return results
    finally:
        arena.close()


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def run_operator(device: CudaDevice, call: OpCall, lowered: Lowered, inputs: Sequence[Array | None]) -> list[Array]:
    """The outputs of a lowered operator."""
    outputs = [np.empty(out.shape, array_dtype(out.dtype)) for out in call.outputs]
    places: dict[tuple[str, int], int] = {}
    sizes: list[int] = []
    for role, nbytes in (
        ("input", [0 if array is None else array.nbytes for array in inputs]),
        ("output", [array.nbytes for array in outputs]),
        ("workspace", list(lowered.workspace)),
    ):
        for index, size in enumerate(nbytes):
            places[role, index] = len(sizes)
            sizes.append(size)
    alias = all_schemas()[call.op].alias
    if alias is not None:
        places["output", 0] = places["input", alias]
    arena = Arena(device, sizes)
    try:
        for index, array in enumerate(inputs):
            if array is not None:
                arena.write(places["input", index], np.ascontiguousarray(array))
        run_lowered(device, lowered, places, arena, call.op)
        device.synchronize()
        arena.check_guards()
        return [arena.read(places["output", index], array) for index, array in enumerate(outputs)]
    finally:
        arena.close()


def run_lowered(
    device: CudaDevice, lowered: Lowered, places: Mapping[tuple[str, int], int], arena: Arena, name: str
) -> None:
    """Launch a lowered operator, its operands at the places of the arena that `places` gives them."""

    def at(operand: Operand) -> Pointer:
        return Pointer(places[operand.role, operand.index], operand.offset)

    for work in lowered.work:
        device.prepare(step(placed(work, at), name), arena.address).launch()
