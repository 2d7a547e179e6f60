"""Dumps: chosen tensors written to files while a graph runs, each just after it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.graphs.late import late_names

if TYPE_CHECKING:
    from kgrun.runtime.dump.config import DumpConfig
    from kgrun.runtime.dump.iterations import Iterations

__all__ = ["DumpConfig", "Iterations"]

# Late: few runs are dumped.
__getattr__ = late_names(__name__, {"config": "DumpConfig", "iterations": "Iterations"})
