"""Open the GPU's context while Python is still importing: on a thread, through the driver's own library.

Making a context takes a quarter of a second and needs no Python. The primary context is counted, so PyCUDA finds it
made; the count taken here ends with the process. So is the management library that reads the GPU's sensors.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading


def open_context_early(device: str) -> threading.Thread | None:
    """Start making the primary context of `device` ("auto", "cuda", "cuda:N"); None where there is no driver.

    Faults are left for the device itself to find and name. Must not be called before a fork.
    """
    kind, _, ordinal = device.partition(":")
    if kind == "cpu" or (ordinal and not ordinal.isdigit()):
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    thread = threading.Thread(target=_retain, args=(driver, int(ordinal or 0)), daemon=True)
    thread.start()
    return thread


def _retain(driver: ctypes.CDLL, ordinal: int) -> None:
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(handle), ordinal) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle)
        with contextlib.suppress(OSError, AttributeError):
            _open_sensors(driver, handle)


def _open_sensors(driver: ctypes.CDLL, handle: ctypes.c_int) -> None:
    """Have the GPU's sensors looked up once: the first time takes longer than all readings of a run."""
    from kgrun.runtime.devices.cuda_nvml import open_sensors

    bus = ctypes.create_string_buffer(32)
    if driver.cuDeviceGetPCIBusId(bus, len(bus), handle) == 0:
        open_sensors(bus.value.decode("ascii"))  # never closed: the library stays open as long as the process
