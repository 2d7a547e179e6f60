"""Data queues: batches from files or Python, copied to the device ahead of the runs that take them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.runtime.queues.settings import QueueFeed

__all__ = ["QueueFeed"]

_HOMES = {"QueueFeed": "settings"}


def __getattr__(name: str) -> Any:
    # Late: few graphs have queues.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
