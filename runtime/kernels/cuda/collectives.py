"""Collectives on CUDA: calls of NCCL on the communication stream."""

from __future__ import annotations

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.names import COLLECTIVES
from kgrun.runtime.collectives.lowering import lowered
from kgrun.runtime.kernels.base import Lowered, on_cuda


@on_cuda(*sorted(COLLECTIVES))
def _collective(call: OpCall) -> Lowered:
    return lowered(call, "nccl")
