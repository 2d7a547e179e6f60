"""Driver calls that return at once, made without giving the interpreter to other threads meanwhile.

The packages let other threads run during each driver call. Who has several to make between two runs would wait for the
interpreter after each of them, longer than the calls take. These must not be ones that wait for the GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from kgrun.runtime.devices.cuda_driver import DriverCallFailed

_HANDLE, _ADDRESS, _UINT, _SIZE = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cuStreamWaitEvent": (_HANDLE, _HANDLE, _UINT),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _SIZE, _HANDLE),
    "cuLaunchKernel": (_HANDLE, *[_UINT] * 7, _HANDLE, _HANDLE, _HANDLE),
}


@cache
def _library() -> ctypes.PyDLL:
    return ctypes.PyDLL("libcuda.so.1")


@cache
def quick(name: str) -> Callable[..., int]:
    """The driver's function of that name; handles are integers. It returns the status."""
    function = getattr(_library(), name)
    function.argtypes, function.restype = _ARGUMENTS[name], ctypes.c_int
    found: Callable[..., int] = function
    return found


def failed(name: str, status: int) -> DriverCallFailed:
    """The error of a status that is none of success."""
    text = ctypes.c_char_p()
    words = "error" if _library().cuGetErrorString(status, ctypes.byref(text)) else (text.value or b"").decode()
    return DriverCallFailed(f"{name} failed: {words} ({status})")
