"""The heap that kernels take memory from where accesses are checked; it outlives launches, see heap.cu."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from kgrun.runtime.compile.ptx.layout import HeapRecord
from kgrun.runtime.compile.ptx.syntax import align_up

_BYTES = 256 << 20  # a GPU has 8 MiB unless told otherwise; pages that nobody touches cost nothing
_GRANULE = 16

_lock = threading.Lock()
_kept: list[Any] = []


def heap() -> int:
    """The address of this process's heap record."""
    with _lock:
        if not _kept:
            memory, granules = np.zeros(_BYTES + 256, np.uint8), np.zeros(_BYTES // _GRANULE, np.uint8)
            begin = align_up(memory.ctypes.data, 256)
            _kept.extend((HeapRecord(begin, _BYTES, granules.ctypes.data, 0, 0), memory, granules))
        return ctypes.addressof(_kept[0])
