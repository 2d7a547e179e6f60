"""View operators on CUDA: only Dropout's mask is written, all else is a view without a kernel."""

from __future__ import annotations

from kgrun.graphs.operators.base import OpCall
from kgrun.runtime.kernels.base import Lowered, on_cuda
from kgrun.runtime.kernels.cuda.common import target
from kgrun.runtime.kernels.cuda.elementwise import Scalars, elementwise


@on_cuda("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "BitCast")
def _view(call: OpCall) -> Lowered:
    return Lowered(())


@on_cuda("Dropout")
def _dropout(call: OpCall) -> Lowered:
    if len(call.outputs) < 2:
        return Lowered(())
    return elementwise([], Scalars("true", "bool"), call.outputs[1], target(1))
