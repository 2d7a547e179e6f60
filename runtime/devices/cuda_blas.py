"""cuBLAS on a device's stream, through nvmath-python's bindings on raw addresses; no TF32 unless it is asked for."""

from __future__ import annotations

import ctypes
import importlib
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import DeviceFault, DeviceUnavailable
from kgrun.runtime.devices.base import Address
from kgrun.runtime.devices.cuda_driver import Driver
from kgrun.runtime.program import LibraryCall

if TYPE_CHECKING:
    from kgrun.runtime.devices.cuda_libraries import Precision

# cublas_v2.h and library_types.h
_DATA_TYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_32F_FAST_TF32 = 68, 70, 77
_NO_REDUCED_PRECISION = 16  # partial sums of halves stay in float
_DEFAULT_ALGORITHM = -1


class Blas:
    """One cuBLAS handle. The device's context must be current."""

    def __init__(self, driver: Driver, precision: Precision = "float32") -> None:
        self._single = _COMPUTE_32F_FAST_TF32 if precision == "tf32" else _COMPUTE_32F
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cublas = importlib.import_module("nvmath.bindings.cublas")
            self._cublas: Any = cublas
            self._handle = cublas.create()
        except Exception as error:  # the bindings raise what their loaders do
            help = "pip install nvidia-cublas, or set KGRUN_BLAS=0 for kgrun's own kernels"
            raise DeviceUnavailable(f"cuBLAS does not start: {error}", code="KG706", help=help) from error
        cublas.set_stream(self._handle, driver.stream)
        cublas.set_math_mode(self._handle, _NO_REDUCED_PRECISION)
        number = int(cublas.get_version(self._handle))
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def prepare(self, call: LibraryCall, address: Address) -> Callable[[], None]:
        """A `gemm` ready to be issued; its config is the one that `kernels.cuda.linear` writes."""
        config = call.config
        a, b, d = (0 if pointer is None else address(pointer) for pointer in call.args)
        wide = config["dtype"] == "float64"
        scalar = ctypes.c_double if wide else ctypes.c_float
        alpha, beta = scalar(config["alpha"]), scalar(config["beta"])
        kind = _DATA_TYPE[config["dtype"]]
        single = self._single if config["dtype"] == "float32" else _COMPUTE_32F
        transpose, ld, steps = config["transpose"], config["ld"], config["steps"]
        arguments = (
            *(self._handle, int(transpose[0]), int(transpose[1]), config["m"], config["n"], config["k"]),
            *(ctypes.addressof(alpha), a, kind, ld[0], steps[0]),
            *(b, kind, ld[1], steps[1]),
            *(ctypes.addressof(beta), d, kind, ld[2], steps[2]),
            *(config["batch"], _COMPUTE_64F if wide else single, _DEFAULT_ALGORITHM),
        )
        gemm, failure = self._cublas.gemm_strided_batched_ex, self._cublas.cuBLASError
        keep = (alpha, beta)

        def run() -> None:
            assert keep
            try:
                gemm(*arguments)
            except failure as error:
                raise DeviceFault(f"cuBLAS refused a product: {error}", code="KG603") from error

        return run

    def close(self, lost: bool) -> None:
        """Destroy the handle, unless its context is gone."""
        if not lost:
            self._cublas.destroy(self._handle)
