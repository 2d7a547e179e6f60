"""Dumps: chosen tensors written to files while a graph runs, each just after it was made."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.runtime.dump.config import DumpConfig
    from kgrun.runtime.dump.iterations import Iterations

__all__ = ["DumpConfig", "Iterations"]

_HOMES = {"DumpConfig": "config", "Iterations": "iterations"}


def __getattr__(name: str) -> Any:
    # Late: few runs are dumped.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
