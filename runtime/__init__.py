"""How a graph runs: lower it, plan its memory, execute it on a device, measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.runtime.session import Session

__all__ = ["Session"]


def __getattr__(name: str) -> Any:
    # Late, so that importing a part of the runtime does not import numpy.
    if name == "Session":
        from kgrun.runtime.session import Session

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
