"""Nodes of the graph file: launches of custom kernels and builtin operators."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag
from typing_extensions import TypeAliasType

from kgrun.graphs.schema.common import Expr, In64Bits, Integer, Name, NonNegativeInt, Record
from kgrun.graphs.schema.kernels import Argument, WorkspaceSpec

# null: an optional input that is absent. Nested lists are flattened (S14).
InputRef = TypeAliasType("InputRef", "Name | list[InputRef] | None")
_AttributeItem = Annotated[bool | Integer | float | str, In64Bits]
AttributeValue = _AttributeItem | list[_AttributeItem]
Stream = Literal["compute", "comm"] | Name | NonNegativeInt


class Collective(Record):
    """How a communication node talks to the other ranks (S84)."""

    group: Name | None = Field(None, description="a name of `groups`; all ranks by default")
    root: Expr | None = None
    peer: Expr | None = None
    contiguous: bool = Field(True, description="inputs, and outputs, each packed side by side (S57)")


DEFAULT_COLLECTIVE = Collective.model_construct()  # its defaults, without building what checks it


class NodeCommon(Record):
    """What a launch and an operator have in common."""

    name: Name
    inputs: list[InputRef] = []
    outputs: list[Name | None] = []
    workspace: list[Expr | WorkspaceSpec] = []
    inplace: dict[Name, Name] = Field({}, description="output: the input whose memory it takes over (S39)")
    clear: list[Name] = Field([], description="outputs set to zero before every launch (S81)")
    after: list[Name] = Field([], description="nodes that must have run before this one")
    stream: Stream | None = None
    collective: Collective | None = None
    no_reuse: bool = Field(False, description="its outputs never share bytes with other tensors (S46)")
    offload: bool = Field(False, description="its outputs are moved to the host between uses (S96)")
    dynamic: bool = Field(False, description="output shapes are known only after it ran (S82)")
    update_async: bool = Field(False, description="its in-place outputs do not count as updated parameters (S22)")
    flops: Expr | None = Field(None, description="floating-point operations, for the report")
    bytes: Expr | None = Field(None, description="bytes moved, for the report")
    doc: str | None = None


class KernelNode(NodeCommon):
    """One launch of a custom kernel."""

    kernel: Name
    args: list[Argument] | None = Field(None, description="default: inputs, then outputs, then workspaces")
    grid: list[Expr] = Field(min_length=1, max_length=3)
    block: list[Expr] = Field(min_length=1, max_length=3)
    shared: Expr = Field(0, description="bytes of dynamic shared memory")
    cluster: list[Expr] | None = Field(None, min_length=1, max_length=3)
    cooperative: bool = False


class OpNode(NodeCommon):
    """One builtin operator, with ONNX's name, attributes and semantics."""

    op: Name
    attributes: dict[str, AttributeValue] = {}
    nop: bool | None = Field(None, description="forward the input's memory instead of running (S41)")
    skip_nop_op_addr: bool = Field(True, description="false: a nop that is a graph output owns its memory (S33)")
    queue: Name | None = Field(None, description="GetNext: the queue that fills its outputs")
    subgraphs: dict[str, Name] = Field({}, description="If: then_branch, else_branch; Loop: body; names of `graphs`")


def _node_kind(value: Any) -> str | None:
    keys = value if isinstance(value, dict) else getattr(value, "model_fields_set", ())
    kinds = [kind for kind in ("kernel", "op") if kind in keys]
    return kinds[0] if len(kinds) == 1 else None


Node = Annotated[
    Annotated[KernelNode, Tag("kernel")] | Annotated[OpNode, Tag("op")],
    Discriminator(_node_kind, custom_error_type="node_kind", custom_error_message="a node has either `kernel` or `op`"),
]
