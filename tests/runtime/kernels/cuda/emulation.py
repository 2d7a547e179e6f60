"""Lowered operators run without a GPU: their CUDA sources as PTX on the CPU engine, compared with the CPU kernels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.compile.ptx.launch import BufferInfo
from kgrun.runtime.compile.ptx.module import PtxModule, load_ptx
from kgrun.runtime.devices.cuda_arguments import layout
from kgrun.runtime.kernels.base import ClearOperand, CopyOperand, KernelCall, Lowered, Operand, cpu_kernel
from kgrun.runtime.program import Pointer, Value
from tests.runtime.kernels.cuda.operator_inputs import RULES

Array = np.ndarray[Any, Any]
_POISON = 0xCD


def array_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype, ml_dtypes' for what numpy lacks."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def random_array(type_: TensorType, rng: np.random.Generator) -> Array:
    """Values in a range where every operator is defined; small integers, so that products stay exact."""
    dtype = array_dtype(type_.dtype)
    if type_.value is not None:
        return np.array(type_.value).astype(dtype).reshape(type_.shape)
    kind = DTYPES[type_.dtype].kind
    if kind == "bool":
        return rng.integers(0, 2, type_.shape).astype(bool)
    if kind == "float":
        return np.asarray(rng.uniform(0.05, 0.95, type_.shape)).astype(dtype)
    return np.asarray(rng.integers(1, 5, type_.shape)).astype(dtype)


def inputs_for(call: OpCall, seed: int = 0) -> list[Array | None]:
    """Inputs of a call; signs vary where the operator takes negative numbers."""
    rng = np.random.default_rng(seed)
    types = [call.lying(index) for index in range(len(call.inputs))]
    arrays = [None if type_ is None else random_array(type_, rng) for type_ in types]
    first = arrays[0] if arrays else None
    unsafe = ("Log", "Sqrt", "Pow", "Acosh", "ReduceLogSum", "BitShift")
    if first is not None and call.op not in unsafe and first.dtype.kind not in "ub" and call.input(0).value is None:
        flip = rng.integers(0, 2, first.shape).astype(bool)
        arrays[0] = np.where(flip, -first, first).astype(first.dtype)
    if call.op == "Acosh" and first is not None:
        arrays[0] = (first.astype(np.float64) + 1.5).astype(first.dtype)
    if call.op in RULES:
        RULES[call.op](call, arrays, rng)
    return arrays


MOVING = frozenset(("movement", "views", "selection", "rearrangement"))


def expected(call: OpCall, inputs: Sequence[Array | None]) -> list[Array]:
    """What the CPU kernels give."""
    outputs = [np.zeros(out.shape, array_dtype(out.dtype)) for out in call.outputs]
    with np.errstate(all="ignore"):
        cpu_kernel(call.op)(call)(inputs, outputs)
    alias = all_schemas()[call.op].alias
    if alias is not None:
        outputs[0] = np.asarray(inputs[alias]).reshape(call.outputs[0].shape)
    return outputs


@cache
def module(source: str, label: str, options: tuple[str, ...], checks: frozenset[str]) -> PtxModule:
    """The source as PTX, ready for the engine."""
    compiled = compile_cuda(source, name=label, arch="sm_80", kind="ptx", options=options)
    return load_ptx(compiled.image.decode(), name=label, checks=checks)


class Memory:
    """Host arrays that stand for device tensors, each with its name and whether it holds data."""

    def __init__(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
        workspace: Sequence[int],
        alias: int | None = None,
    ) -> None:
        self.arrays: dict[tuple[str, int], Array] = {}
        self.written: set[tuple[str, int]] = set()
        for index, array in enumerate(inputs):
            if array is not None and array.nbytes:
                self.arrays["input", index] = _aligned(array.reshape(-1).view(np.uint8))
                self.written.add(("input", index))
        for index, array in enumerate(outputs):
            self.arrays["output", index] = _aligned(np.full(max(array.nbytes, 1), _POISON, np.uint8))
        if alias is not None:
            self.arrays["output", 0] = self.arrays["input", alias]
        for index, nbytes in enumerate(workspace):
            self.arrays["workspace", index] = _aligned(np.full(nbytes, _POISON, np.uint8))

    def address(self, operand: Operand) -> int:
        return int(self.arrays[operand.role, operand.index].ctypes.data) + operand.offset

    def buffers(self) -> list[BufferInfo]:
        return [
            BufferInfo(f"{role}{index}", int(a.ctypes.data), a.nbytes, role == "input", (role, index) in self.written)
            for (role, index), a in self.arrays.items()
        ]


def _aligned(data: Array) -> Array:
    block = np.empty(data.nbytes + 512, np.uint8)
    start = -block.ctypes.data % 512
    block[start : start + data.nbytes] = data
    return block[start : start + data.nbytes]


def run_lowered(
    lowered: Lowered, call: OpCall, inputs: Sequence[Array | None], checks: frozenset[str] = frozenset()
) -> list[Array]:
    """The outputs of a lowered operator; AssertionError when a check of the engine fails."""
    outputs = [np.empty(out.shape, array_dtype(out.dtype)) for out in call.outputs]
    memory = Memory(inputs, outputs, lowered.workspace, all_schemas()[call.op].alias)
    for work in lowered.work:
        if isinstance(work, KernelCall):
            _launch(work, memory, checks)
            memory.written |= {
                (arg.role, arg.index) for arg in work.args if isinstance(arg, Operand) and arg.role != "input"
            }
        elif isinstance(work, CopyOperand):
            source = memory.arrays[work.source.role, work.source.index]
            to = memory.arrays[work.target.role, work.target.index]
            moved = source[work.source.offset : work.source.offset + work.nbytes]
            assert moved.nbytes == work.nbytes
            to[work.target.offset : work.target.offset + work.nbytes] = moved
            memory.written.add((work.target.role, work.target.index))
        elif isinstance(work, ClearOperand):
            start = work.target.offset
            memory.arrays[work.target.role, work.target.index][start : start + work.nbytes] = 0
            memory.written.add((work.target.role, work.target.index))
        else:
            raise AssertionError(f"{work} runs on a GPU alone")
    return [
        memory.arrays["output", index][: out.nbytes].view(out.dtype).reshape(out.shape)
        for index, out in enumerate(outputs)
    ]


def _launch(work: KernelCall, memory: Memory, checks: frozenset[str]) -> None:
    kernel = module(str(work.code.text), work.code.label, work.code.options, checks).kernel(work.code.entry)
    args = [Pointer(0) if isinstance(arg, Operand) else arg for arg in work.args]
    rows = layout(args)
    block = bytearray(rows[-1].offset + rows[-1].size)
    for arg, row in zip(work.args, rows, strict=True):
        if isinstance(arg, Value):
            block[row.offset : row.offset + row.size] = arg.data
        else:
            struct.pack_into("<Q", block, row.offset, 0 if arg is None else memory.address(arg))
    result = kernel.launch(work.grid, work.block, work.shared, bytes(block), buffers=memory.buffers(), timeout_s=60)
    assert [str(fault) for fault in result.faults] == []


TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}


def compare(call: OpCall, got: Sequence[Array], want: Sequence[Array]) -> None:
    """Integers and moved elements must be equal, floats within a few units of their precision."""
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        label = f"{call.op} {call.node} output {index}"
        if all_schemas()[call.op].family in MOVING:
            assert a.tobytes() == np.ascontiguousarray(b).tobytes(), label
        elif a.dtype.kind in "iub":
            np.testing.assert_array_equal(a, b, err_msg=label)
        else:
            rtol = TOLERANCE.get(call.outputs[index].dtype, 0.13)
            np.testing.assert_allclose(
                a.astype(np.float64), b.astype(np.float64), rtol, rtol * _scale(call), err_msg=label
            )


_SUMS = (
    *("linear", "nn", "reduction", "normalization", "transposed", "contraction", "sampling", "signal"),
    *("losses", "gradients", "recurrent", "attention", "decoding"),
)


def _scale(call: OpCall) -> float:
    """Absolute slack: sums of many terms of both signs cancel; the rows of a softmax do not."""
    if call.op == "Softmax":
        return 0.01
    return 4.0 if all_schemas()[call.op].family in _SUMS else 1.0
