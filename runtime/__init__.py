"""How a graph runs: lower it, plan its memory, execute it on a device, measure it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.runtime.parameters import load_parameters, save_parameters
    from kgrun.runtime.session import Session

__all__ = ["Session", "load_parameters", "save_parameters"]

_HOMES = {"Session": "session", "load_parameters": "parameters", "save_parameters": "parameters"}


def __getattr__(name: str) -> Any:
    # Late, so that importing a part of the runtime does not import numpy.
    if name in _HOMES:
        return getattr(import_module(f"kgrun.runtime.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
