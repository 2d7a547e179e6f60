"""A program: steps over buffers, what a bound graph becomes for one kind of device.

A step is one thing that runs. A buffer is an alias class: tensors that share their bytes (reshapes, in-place and ref
outputs). Planner, execute loop, timing, dump and checks read steps and buffers and never ask what a step computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kgrun.graphs.bound import BoundGraph, BoundNode, Dim3, Warning
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from kgrun.runtime.memory.offload.records import Offload


class MemoryClass(StrEnum):
    """What a buffer is to the graph; also how reports group bytes."""

    INPUT = "input"
    PARAMETER = "parameter"
    CONSTANT = "constant"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"
    WORKSPACE = "workspace"
    COMMUNICATION = "communication"

    @property
    def static(self) -> bool:
        """Whether it keeps its bytes for the session (S21)."""
        return self in (MemoryClass.INPUT, MemoryClass.PARAMETER, MemoryClass.CONSTANT, MemoryClass.OUTPUT)


@dataclass(frozen=True, slots=True)
class Buffer:
    """One alias class.

    Attributes:
        index: position in `Program.buffers`.
        name: the tensor that owns the bytes, or `node.workspace[i]`.
        nbytes: bytes of its largest member, unaligned; 0 needs no memory.
        tensors: names that live in it.
        lifelong: keeps its bytes for the whole run although it is dynamic (S55).
        no_reuse: shares bytes with no other buffer (S46).
        group: contiguous group it belongs to, with its position there (S57).
        shares: why its members share: tensor -> "view of x", "in place of x", "ref of x".
        lives: inclusive spans of steps in which it holds data, where transfers bring and take it; such a buffer has
            dynamic memory whatever its class. Empty: the steps that touch it tell.
    """

    index: int
    name: str
    nbytes: int
    memory_class: MemoryClass
    tensors: tuple[str, ...] = ()
    lifelong: bool = False
    no_reuse: bool = False
    group: tuple[int, int] | None = None
    shares: Mapping[str, str] | None = None
    lives: tuple[tuple[int, int], ...] = ()

    @property
    def static(self) -> bool:
        """Whether it keeps its bytes for the session."""
        return self.memory_class.static and not self.lives


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address inside a buffer."""

    buffer: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """A launch argument passed by value: its bytes and alignment."""

    data: bytes
    align: int


@dataclass(frozen=True, slots=True)
class KernelCode:
    """Where a kernel's machine code comes from.

    Attributes:
        text: CUDA C or PTX source; of a cubin its PTX where that is known, else None.
        image: cubin bytes; None for text.
        language: "cuda", "ptx" or "cubin".
        label: what messages call it: the file, or `graph.yaml: kernels.k.source`.
        entry: the kernel's name, templates with their arguments.
        kernel: key in the graph's `kernels`, None for builtin operators.
    """

    text: str | None
    image: bytes | None
    language: str
    label: str
    entry: str
    options: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel launch. An argument is an address, a value, or None for a null pointer."""

    code: KernelCode
    args: tuple[Pointer | Value | None, ...]
    grid: Dim3
    block: Dim3
    shared: int = 0
    cluster: Dim3 | None = None
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """A typed view of a buffer."""

    pointer: Pointer
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HostCall:
    """A function over numpy views: `function(inputs, outputs)`; absent optional inputs are None.

    It writes its results into `outputs` and keeps no reference to them.
    """

    function: Callable[[Sequence[np.ndarray[Any, Any] | None], Sequence[np.ndarray[Any, Any]]], None]
    inputs: tuple[ArrayRef | None, ...]
    outputs: tuple[ArrayRef, ...]


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of a vendor library: `library` and `routine` name it, `config` holds plain values.

    `otherwise` is launched where the library has no way to do it.
    """

    library: str
    routine: str
    config: Mapping[str, Any]
    args: tuple[Pointer | None, ...]
    otherwise: Launch | None = None


@dataclass(frozen=True, slots=True)
class Clear:
    """Set bytes to zero."""

    target: Pointer
    nbytes: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy bytes on the device."""

    target: Pointer
    source: Pointer
    nbytes: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """Copy bytes between the device and the program's host memory: "in" to the device, "out" of it."""

    direction: Literal["in", "out"]
    pointer: Pointer
    host_offset: int
    nbytes: int


Work = Launch | HostCall | LibraryCall | Clear | Copy | Transfer


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that runs.

    Attributes:
        index: position in `Program.steps`, the order in which steps are issued.
        name: the node's name; `node.1`, `node.2` … where a node needs several steps.
        node: index of the bound node it comes from.
        op: operator or kernel name, for reports.
        reads, writes: buffers; a workspace is written.
        after: indices of earlier steps it must wait for, beyond its own stream's order.
        flops, nbytes: of the step, None where unknown; nbytes counts reads and writes.
    """

    index: int
    name: str
    node: int
    op: str
    stream: str
    work: Work
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: tuple[int, ...] = ()
    flops: int | None = None
    nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """An in-place request, granted or refused, with the reason."""

    node: str
    output: str
    input: str
    granted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Turned:
    """A tensor that no step makes: its readers read another one in its place, with the last two axes swapped.

    Attributes:
        source: the other tensor.
        readers: node and position among its inputs, in the order of the nodes.
    """

    source: str
    readers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Steps over buffers for one target.

    Attributes:
        graph: as it runs: what reads a tensor of `turned` names that one's source.
        target: "cpu" or "cuda".
        slots: where each tensor lives; tensors without device memory are missing.
        decisions: in-place requests and what became of them.
        groups: contiguous groups, each a tuple of buffer indices in order.
        offload: which buffers come and go between host and device; None where all stay.
        turned: results of Transposes that run nothing, because products read their inputs as they lie.
        fused: results that are not stored, by the index of the node whose kernel computes them for itself.
    """

    graph: BoundGraph
    target: str
    buffers: tuple[Buffer, ...]
    slots: Mapping[str, Pointer]
    steps: tuple[Step, ...]
    decisions: tuple[Decision, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    warnings: tuple[Warning, ...] = ()
    offload: Offload | None = None
    turned: Mapping[str, Turned] = field(default_factory=dict)
    fused: Mapping[str, int] = field(default_factory=dict)

    def node_of(self, step: Step) -> BoundNode:
        """The node a step comes from."""
        return self.graph.nodes[step.node]

    def inputs_in_file(self, node: BoundNode) -> tuple[str | None, ...]:
        """Names of a node's inputs by position, as the file has them: also of what another is read in place of."""
        if node.call is None or not node.call.turned:
            return node.inputs
        names = {at: name for name, turned in self.turned.items() for at in turned.readers}
        return tuple(names.get((node.index, i), name) for i, name in enumerate(node.inputs))
