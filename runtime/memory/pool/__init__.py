"""The memory pool: best fit inside large blocks, dry (over integers) and live (on a device)."""

from .best_fit import BestFitPool
from .blocks import HEADROOM, UNIT, BlockSource, DryBlocks, NoRoom
from .statistics import Holder, PoolExhausted, PoolStatistics, UnknownAddress

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
