"""Convolution on CUDA by cuDNN, where its frontend is installed and takes it; kgrun's own kernel stands behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.shapes import strides_of
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.base import KernelCall, LibraryRoutine, Lowered, LoweredWork, Operand
from kgrun.runtime.kernels.cuda.common import compute_type, library_installed, source_input, target
from kgrun.runtime.kernels.cuda.elementwise import Scalars, Source, elementwise

_TYPES = frozenset({"float32", "float16", "bfloat16"})
_LEAST_WORKSPACE, _MOST_WORKSPACE = 1 << 20, 64 << 20


@lru_cache
def dnn_available() -> bool:
    """Whether cuDNN and its frontend are installed; KGRUN_DNN=0 turns it off."""
    return library_installed("KGRUN_DNN", "cudnn", "cudnn/lib/libcudnn.so*", "usr/lib/x86_64-linux-gnu/libcudnn.so*")


def convolution(call: OpCall, window: Window, own: Callable[[bool], KernelCall]) -> Lowered | None:
    """The call through cuDNN; None where that is not to be had.

    float32 gets its bias by a launch of its own: the engines that fuse it round their inputs for tensor cores.

    Args:
        own: kgrun's kernel for the same, with or without bias, for what cuDNN has no engine for.
    """
    x, w, y = call.input(0), call.input(1), call.outputs[0]
    if not dnn_available() or x.dtype not in _TYPES or len(window.kernel) not in (2, 3):
        return None
    biased = call.optional(2) is not None
    fused = biased and x.dtype != "float32"
    workspace = workspace_bound(x, w, y)
    config = {
        "dtype": x.dtype, "x": x.shape, "w": w.shape, "y": y.shape, "strides": window.strides,
        "dilations": window.dilations, "begin": window.begin, "end": window.end, "workspace": workspace,
    }  # fmt: skip
    args = (source_input(0), source_input(1), source_input(2) if fused else None, target(), Operand("workspace", 0))
    routine = LibraryRoutine("cudnn", "conv", config, args, own(fused))
    added = _add_bias(call) if biased and not fused else ()
    return Lowered((routine, *added), (workspace,))


def _add_bias(call: OpCall) -> tuple[LoweredWork, ...]:
    y = call.outputs[0]
    channel = tuple(1 if axis == 1 else 0 for axis in range(len(y.shape)))
    sources = [Source(target(), y.dtype, "y", strides_of(y.shape)), Source(source_input(2), y.dtype, "b", channel)]
    return elementwise(sources, Scalars("y + b", compute_type(y.dtype)), y).work


def workspace_bound(*operands: TensorType) -> int:
    """Bytes that a convolution may use, known without a device: room to change the layout of all its operands."""
    return min(_MOST_WORKSPACE, max(_LEAST_WORKSPACE, 2 * sum(operand.nbytes for operand in operands)))
