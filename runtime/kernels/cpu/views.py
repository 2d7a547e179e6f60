"""View operators in numpy, for the cases in which their bytes cannot be shared: a plain copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.runtime.kernels.base import HostFunction, on_cpu

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


@on_cpu("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "BitCast", "Dropout")
def view(call: OpCall) -> HostFunction:
    """Output 0 is input 0 in another shape or type; Dropout's mask, output 1, is true everywhere."""
    shape = call.outputs[0].shape

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        source = inputs[0]
        assert source is not None
        np.copyto(outputs[0], source.reshape(shape).view(outputs[0].dtype))
        if len(outputs) > 1:
            outputs[1].fill(True)

    return run
