"""Names the steps for NVIDIA's profilers: a range around each, where the package `nvtx` is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from kgrun.runtime.program import Step


class NvtxRanges:
    """Opens a range before a step and closes it after. Implements `execute.Observer`."""

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx

    def before(self, step: Step) -> None:
        """Open the range."""
        self._nvtx.push_range(step.name)

    def after(self, step: Step) -> None:
        """Close it."""
        self._nvtx.pop_range()

    def finish(self) -> None:
        """Nothing."""


def ranged(name: str, call: Callable[[], None]) -> Callable[[], None]:
    """`call` inside a range, or itself where the package is not installed: a replayed graph is one call to the host."""
    if importlib.util.find_spec("nvtx") is None:
        return call
    import nvtx

    def inside() -> None:
        nvtx.push_range(name)
        try:
            call()
        finally:
            nvtx.pop_range()

    return inside


def nvtx_observers() -> list[NvtxRanges]:
    """One observer, or none where the package is not installed."""
    if importlib.util.find_spec("nvtx") is None:
        return []
    import nvtx

    return [NvtxRanges(nvtx)]
