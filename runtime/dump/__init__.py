"""Dumps: chosen tensors written to files while a graph runs, each just after it was made."""

from kgrun.runtime.dump.config import DumpConfig
from kgrun.runtime.dump.iterations import Iterations

__all__ = ["DumpConfig", "Iterations"]
