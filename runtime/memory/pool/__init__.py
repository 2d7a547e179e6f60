"""The memory pool: best fit inside large blocks, dry (over integers) and live (on a device)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.graphs.late import late_names

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

# Late: planned runs have no pool.
__getattr__ = late_names(
    __name__,
    {
        "best_fit": "BestFitPool",
        "blocks": "HEADROOM UNIT BlockSource DryBlocks NoRoom",
        "statistics": "Holder PoolExhausted PoolStatistics UnknownAddress",
    },
)
