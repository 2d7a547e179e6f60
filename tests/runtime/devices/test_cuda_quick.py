"""Driver calls made without giving the interpreter away, over a stand-in for the driver's library."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from kgrun.runtime.devices import cuda_quick


class Library:
    """Stands for the driver: one function, and the words of its errors."""

    def __init__(self) -> None:
        self.given: list[tuple[int, ...]] = []
        kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
        self.cuStreamWaitEvent = kind(self._wait)

    def _wait(self, *arguments: int) -> int:
        self.given.append(arguments)
        return 400 if arguments[1] == 13 else 0

    def cuGetErrorString(self, status: int, text: Any) -> int:
        if status != 400:
            return 1
        text._obj.value = b"invalid resource handle"
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(cuda_quick, "_library", lambda: made)
    cuda_quick.quick.cache_clear()
    yield made  # type: ignore[misc]
    cuda_quick.quick.cache_clear()


def test_handles_of_64_bits_arrive_whole_and_the_status_comes_back(library: Library) -> None:
    call = cuda_quick.quick("cuStreamWaitEvent")
    assert call(2**63 + 7, 2**40 + 1, 0) == 0
    assert call(1, 13, 0) == 400
    assert library.given == [(2**63 + 7, 2**40 + 1, 0), (1, 13, 0)]


def test_an_error_says_the_drivers_words(library: Library) -> None:
    assert str(cuda_quick.failed("cuStreamWaitEvent", 400)) == "cuStreamWaitEvent failed: invalid resource handle (400)"
    assert str(cuda_quick.failed("cuEventRecord", 4711)) == "cuEventRecord failed: error (4711)"
