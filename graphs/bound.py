"""A bound graph: every dimension, shape and dtype known, checked, in execution order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import PathPart
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.names import COMMUNICATING
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph, QueueSpec
    from kgrun.graphs.schema.nodes import Collective, KernelNode, OpNode
    from kgrun.graphs.schema.tensors import Role, TensorSpec

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class BoundTensor:
    """One tensor with its type known.

    Attributes:
        role: as written, or found out: a producer makes an intermediate, data make a parameter or constant.
        type: dtype, shape, and the value where it is known.
        producer: index into `BoundGraph.nodes`, None for what comes from outside.
        consumers: indices into `BoundGraph.nodes`, ascending, one entry a node.
        used: whether a node's kernel reads it on the device (S18); host-only shape inputs do not count.
        discovered: reached by a node but not declared as an input (S12).
        spec: what the file says of it, None for a tensor that only a node names.
    """

    name: str
    role: Role
    type: TensorType
    producer: int | None = None
    consumers: tuple[int, ...] = ()
    used: bool = True
    discovered: bool = False
    is_output: bool = False
    spec: TensorSpec | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor, unaligned."""
        return self.type.nbytes


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor's device address."""

    name: str


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A value passed by value.

    Attributes:
        type: dtype or vector type name, "bytes" or "struct".
        data: the little-endian bytes.
        align: bytes.
    """

    type: str
    data: bytes
    align: int


@dataclass(frozen=True, slots=True)
class WorkspaceArgument:
    """The address of the node's workspace `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class NullArgument:
    """A null pointer."""


Argument = TensorArgument | ScalarArgument | WorkspaceArgument | NullArgument


@dataclass(frozen=True, slots=True)
class BoundLaunch:
    """The launch of a custom kernel. `shared` is dynamic shared memory in bytes."""

    kernel: str
    args: tuple[Argument, ...]
    grid: Dim3
    block: Dim3
    shared: int = 0
    cluster: Dim3 | None = None
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class BoundNode:
    """One node in execution order.

    Attributes:
        index: position in `BoundGraph.nodes`.
        position: position in the file's `nodes`, for messages.
        op: the operator's name; the kernel's name for a launch.
        inputs, outputs: tensor names by position, None where absent.
        call: the operator with its types, None for a launch.
        launch: the launch, None for an operator.
        workspace: bytes of each scratch block; `cleared_workspace` are the indices to zero first.
        inplace: output name -> input name, as declared.
        clear: outputs to zero first.
        predecessors: indices of nodes that must have run before: producers, `after`, and write-after-read order.
        flops, bytes: None where unknown.
    """

    index: int
    position: int
    name: str
    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    call: OpCall | None
    launch: BoundLaunch | None
    workspace: tuple[int, ...]
    cleared_workspace: tuple[int, ...]
    inplace: Mapping[str, str]
    clear: tuple[str, ...]
    predecessors: tuple[int, ...]
    flops: int | None
    bytes: int | None
    spec: KernelNode | OpNode

    @property
    def label(self) -> str:
        """The kernel or operator, or the operators that it computes together: `Div+Erf+Add`."""
        return self.op if self.call is None else self.call.label

    @property
    def stream(self) -> str:
        """The stream's name: what the file says, "comm" for collectives, else "compute" (S77)."""
        if self.spec.stream is not None:
            return str(self.spec.stream)
        return "comm" if self.collective is not None else "compute"

    @property
    def collective(self) -> Collective | None:
        """How it talks to other ranks: what the file says, or all defaults for a collective operator (S84)."""
        if self.spec.collective is None and self.call is not None and self.op in COMMUNICATING:
            from kgrun.graphs.schema.nodes import DEFAULT_COLLECTIVE

            return DEFAULT_COLLECTIVE
        return self.spec.collective

    def read_names(self) -> tuple[str, ...]:
        """Names of the inputs that are there, in order, each once."""
        return tuple(dict.fromkeys(name for name in self.inputs if name is not None))

    def written_names(self) -> tuple[str, ...]:
        """Names of the outputs that are there, in order."""
        return tuple(name for name in self.outputs if name is not None)


@dataclass(frozen=True, slots=True)
class BoundQueue:
    """A data queue that a GetNext node reads. Its items are inputs; the node itself runs nothing.

    Attributes:
        items: names of the tensors that it feeds, in order; all have the same first extent, the batch size.
        position: of the GetNext node in the file's `nodes`.
    """

    name: str
    items: tuple[str, ...]
    position: int
    spec: QueueSpec


@dataclass(frozen=True, slots=True)
class BoundTable:
    """A parameter that stays on the host; the graph sees its cache: `rows` rows and a last one of zeros.

    Attributes:
        shape: of the whole table.
        updated: whether a node writes to its rows.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    persist: bool
    updated: bool


@dataclass(frozen=True, slots=True)
class BoundCache:
    """Tables that are looked up by the same ids, and so share one index of cached rows.

    Attributes:
        ids: the queue item whose values become indices of cached rows.
        rows: cached at once, of each table.
    """

    ids: str
    rows: int
    tables: tuple[BoundTable, ...]


@dataclass(frozen=True, slots=True)
class Warning:
    """Something worth saying that stops nothing. `code` is stable, for example W-LONELY-WEIGHT."""

    code: str
    message: str
    path: tuple[PathPart, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundGraph:
    """The graph with nothing left open.

    Attributes:
        source: what the user wrote; also finds places in the file.
        dims: every dimension's value.
        tensors: by name: inputs in order (declared, then discovered), then outputs of nodes in execution order,
            then what no node touches.
        nodes: in execution order, a stable topological order of the file's.
        outputs: names of the graph's outputs, in order.
        warnings: what the checks found worth saying.
        values: host arrays given at bind time (inputs that decide shapes), by name.
        queues: those that a node reads.
        caches: of tables that stay on the host.
    """

    source: KernelGraph
    dims: Mapping[str, int]
    tensors: Mapping[str, BoundTensor]
    nodes: tuple[BoundNode, ...]
    outputs: tuple[str, ...]
    warnings: tuple[Warning, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    queues: tuple[BoundQueue, ...] = ()
    caches: tuple[BoundCache, ...] = ()

    @property
    def fed(self) -> frozenset[str]:
        """Names of the inputs that queues fill."""
        return frozenset(name for queue in self.queues for name in queue.items)

    @property
    def cached(self) -> frozenset[str]:
        """Names of the tables that stay on the host."""
        return frozenset(table.name for cache in self.caches for table in cache.tables)
