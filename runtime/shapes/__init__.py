"""One graph at many shapes: each bound, planned and captured once, and kept."""

from kgrun.runtime.shapes.session import ShapeSession

__all__ = ["ShapeSession"]
