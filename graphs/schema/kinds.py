"""Which kind of record a part of a graph file is, told by what it has: nothing here needs the records' classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from kgrun.graphs.schema.graph import DimSpec
    from kgrun.graphs.schema.kernels import WorkspaceSpec
    from kgrun.graphs.schema.nodes import KernelNode, OpNode
    from kgrun.graphs.schema.tensors import FillInit, Init, IntegersInit, RangeInit, UniformInit


def is_op(node: KernelNode | OpNode) -> TypeIs[OpNode]:
    """Whether it is a builtin operator; else it launches a kernel."""
    return hasattr(node, "op")


def is_dim(dim: int | DimSpec) -> TypeIs[DimSpec]:
    """Whether a dimension says more than its value."""
    return not isinstance(dim, int)


def is_workspace(entry: int | str | WorkspaceSpec) -> TypeIs[WorkspaceSpec]:
    """Whether scratch memory says more than its size."""
    return not isinstance(entry, (int, str))


def is_fill(init: Init) -> TypeIs[FillInit]:
    """Whether all elements are the same."""
    return hasattr(init, "fill")


def is_range(init: Init) -> TypeIs[RangeInit]:
    """Whether elements are equally far apart."""
    return hasattr(init, "arange")


def is_integers(init: Init) -> TypeIs[IntegersInit]:
    """Whether elements are random integers."""
    return hasattr(init, "integers")


def is_uniform(init: Init) -> TypeIs[UniformInit]:
    """Whether elements are uniform random numbers; else they are normal, where they are random floats."""
    return hasattr(init, "uniform")
