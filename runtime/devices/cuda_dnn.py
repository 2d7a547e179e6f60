"""cuDNN on a device's stream, through the graph interface of its frontend on raw addresses.

float32 stays float32 unless the precision is "tf32": plans that round their inputs for tensor cores are refused.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import DeviceFault, DeviceUnavailable
from kgrun.graphs.operators.shapes import strides_of
from kgrun.runtime.devices.base import Address
from kgrun.runtime.devices.cuda_libraries import NotSupported
from kgrun.runtime.program import LibraryCall

if TYPE_CHECKING:
    from kgrun.runtime.devices.cuda_driver import Driver
    from kgrun.runtime.devices.cuda_libraries import Precision

_TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}


class Dnn:
    """One cuDNN handle. The device's context must be current."""

    def __init__(self, driver: Driver, precision: Precision) -> None:
        self._precision = precision
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._cudnn: Any = importlib.import_module("cudnn")
            self._handle = self._cudnn.create_handle()
            self._cudnn.set_stream(handle=self._handle, stream=driver.stream)
        except Exception as error:  # the bindings raise what their loaders do
            help = "pip install nvidia-cudnn-cu13, or set KGRUN_DNN=0 for kgrun's own kernels"
            raise DeviceUnavailable(f"cuDNN does not start: {error}", code="KG706", help=help) from error
        number = int(self._cudnn.backend_version())
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def prepare(self, call: LibraryCall, address: Address) -> Callable[[], None]:
        """A `conv` ready to be issued; its config is the one that `kernels.cuda.dnn` writes."""
        try:
            graph, tensors = self._convolution(call)
        except Exception as error:  # what the frontend raises for a graph that no engine takes
            raise NotSupported(str(error)) from error
        *operands, scratch = call.args
        places = [None if pointer is None else address(pointer) for pointer in operands]
        pack = {tensor: place for tensor, place in zip(tensors, places, strict=True) if tensor is not None}
        workspace = address(scratch) if scratch is not None else 0
        handle = self._handle

        def run() -> None:
            try:
                graph.execute(pack, workspace, handle=handle)
            except Exception as error:
                raise DeviceFault(f"cuDNN refused a convolution: {error}", code="KG603") from error

        return run

    def _convolution(self, call: LibraryCall) -> tuple[Any, list[Any]]:
        """The built graph, and its tensors in the order of the call's operands: x, w, bias, y."""
        cudnn, config = self._cudnn, call.config
        kind = getattr(cudnn.data_type, _TYPES[config["dtype"]])
        graph = cudnn.pygraph(
            io_data_type=kind,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=self._handle,
        )

        def tensor(name: str, shape: tuple[int, ...]) -> Any:
            return graph.tensor(name=name, dim=list(shape), stride=list(strides_of(shape)), data_type=kind)

        x, w = tensor("x", config["x"]), tensor("w", config["w"])
        y = graph.conv_fprop(
            image=x, weight=w, pre_padding=list(config["begin"]), post_padding=list(config["end"]),
            stride=list(config["strides"]), dilation=list(config["dilations"]),
        )  # fmt: skip
        bias = None
        if call.args[2] is not None:
            bias = tensor("bias", (1, config["w"][0], *(1 for _ in config["strides"])))
            y = graph.bias(input=y, bias=bias)
        y.set_output(True).set_data_type(kind).set_dim(list(config["y"])).set_stride(list(strides_of(config["y"])))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        if config["dtype"] == "float32" and self._precision == "float32":
            notes = cudnn.numerical_note
            graph.deselect_numeric_notes([notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS])
        graph.deselect_workspace_greater_than(config["workspace"])
        graph.check_support()
        graph.build_plans(cudnn.build_plan_policy.HEURISTICS_CHOICE)
        return graph, [x, w, bias, y]

    def close(self, lost: bool) -> None:
        """Destroy the handle, unless its context is gone."""
        if not lost:
            self._cudnn.destroy_handle(self._handle)
