"""Launches that PyCUDA lacks, through cuda-bindings on the same context: cooperative, clusters, other streams."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from kgrun.graphs.bound import Dim3
from kgrun.runtime.devices.cuda_driver import DriverCallFailed
from kgrun.runtime.devices.cuda_quick import failed, quick

# cuda.h: CU_LAUNCH_PARAM_END, _BUFFER_POINTER, _BUFFER_SIZE
_END, _BUFFER, _SIZE = 0, 1, 2


def extended_launcher(
    function: Any, grid: Dim3, block: Dim3, packed: bytes, shared: int, cluster: Dim3 | None, coop: bool, stream: int
) -> Callable[[], None]:
    """A launch of `function` (a driver function with its module) with launch attributes."""
    from cuda.bindings import driver

    module = function.module
    if module.extended is None:
        module.extended = _call("cuModuleLoadData", driver.cuModuleLoadData(module.image))
    handle = _call("cuModuleGetFunction", driver.cuModuleGetFunction(module.extended, function.symbol.encode()))
    if function.shared:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _call("cuFuncSetAttribute", driver.cuFuncSetAttribute(handle, attribute, function.shared))
    buffer = ctypes.create_string_buffer(packed, max(1, len(packed)))
    size = ctypes.c_size_t(len(packed))
    extra = (ctypes.c_void_p * 5)(_BUFFER, ctypes.addressof(buffer), _SIZE, ctypes.addressof(size), _END)
    keep = (buffer, size, extra)
    if cluster is None and not coop:
        return _plain_launch(int(handle), grid, block, shared, stream, ctypes.addressof(extra), keep)
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = shared
    config.hStream = driver.CUstream(stream)
    attributes = _attributes(driver, cluster, coop)
    if attributes:
        config.attrs = attributes
    config.numAttrs = len(attributes)

    def launch() -> None:
        assert keep
        _call("cuLaunchKernelEx", driver.cuLaunchKernelEx(config, handle, 0, ctypes.addressof(extra)))

    return launch


def _plain_launch(
    handle: int, grid: Dim3, block: Dim3, shared: int, stream: int, extra: int, keep: object
) -> Callable[[], None]:
    call = quick("cuLaunchKernel")

    def launch() -> None:
        assert keep
        status = call(handle, *grid, *block, shared, stream, None, extra)
        if status:
            raise failed("cuLaunchKernel", status)

    return launch


def _attributes(driver: Any, cluster: Dim3 | None, coop: bool) -> list[Any]:
    found = []
    if cluster is not None:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster
        found.append(attribute)
    if coop:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attribute.value.cooperative = 1
        found.append(attribute)
    return found


def unload_extended(module: Any) -> None:
    """Unload what `extended_launcher` loaded; the context must be current."""
    from cuda.bindings import driver

    driver.cuModuleUnload(module)


def _call(routine: str, result: tuple[Any, ...]) -> Any:
    if int(result[0]) != 0:
        from cuda.bindings import driver

        _, text = driver.cuGetErrorString(result[0])
        raise DriverCallFailed(f"{routine} failed: {text.decode() if text else result[0]}")
    return result[1] if len(result) > 1 else None
