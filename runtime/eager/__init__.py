"""Graphs run node by node: shapes and branches that only the run decides, and single operators (M5)."""

from kgrun.runtime.eager.session import EagerSession

__all__ = ["EagerSession"]
