"""The memory pool: best fit inside large blocks, dry (over integers) and live (on a device)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.runtime.memory.pool.best_fit import BestFitPool
    from kgrun.runtime.memory.pool.blocks import HEADROOM, UNIT, BlockSource, DryBlocks, NoRoom
    from kgrun.runtime.memory.pool.statistics import Holder, PoolExhausted, PoolStatistics, UnknownAddress

__all__ = [
    "HEADROOM",
    "UNIT",
    "BestFitPool",
    "BlockSource",
    "DryBlocks",
    "Holder",
    "NoRoom",
    "PoolExhausted",
    "PoolStatistics",
    "UnknownAddress",
]

_MEMBERS = {
    "best_fit": ("BestFitPool",),
    "blocks": ("HEADROOM", "UNIT", "BlockSource", "DryBlocks", "NoRoom"),
    "statistics": ("Holder", "PoolExhausted", "PoolStatistics", "UnknownAddress"),
}
_HOMES = {name: home for home, names in _MEMBERS.items() for name in names}


def __getattr__(name: str) -> Any:
    # Late: planned runs have no pool.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
