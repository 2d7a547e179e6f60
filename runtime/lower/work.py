"""What one node becomes: launches, host calls, library calls, clears and copies over buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kgrun.graphs.bound import BoundGraph, BoundNode, NullArgument, ScalarArgument, TensorArgument
from kgrun.graphs.operators.names import COLLECTIVES
from kgrun.graphs.records import dataclass
from kgrun.runtime.lower.sources import KernelSources
from kgrun.runtime.program import (
    ArrayRef,
    Copy,
    HostCall,
    KernelCode,
    Launch,
    Pointer,
    Value,
    Work,
)

if TYPE_CHECKING:
    from kgrun.runtime.kernels.base import HostFunction, Lowered, Operand


@dataclass(frozen=True, slots=True)
class NodeWork:
    """A node's work before its addresses are known: an operator's lowering, or a launch's code."""

    workspace: tuple[int, ...] = ()
    lowered: Lowered | None = None
    function: HostFunction | None = None
    code: KernelCode | None = None


def prepare_node(node: BoundNode, target: str, sources: KernelSources) -> NodeWork:
    """Choose the node's implementation on `target`."""
    if node.launch is not None:
        return NodeWork(workspace=node.workspace, code=sources.code(node.launch.kernel))
    from kgrun.runtime.kernels.base import cpu_kernel, cuda_kernel  # a graph of launches needs neither

    assert node.call is not None
    made_by_the_host = not node.call.exact  # planned by the largest that its results can be; run node by node
    if made_by_the_host or (target == "cpu" and node.op not in COLLECTIVES):
        return NodeWork(workspace=node.workspace, function=cpu_kernel(node.op)(node.call))
    if target == "cpu":
        from kgrun.runtime.collectives.lowering import lowered as collective

        lowered = collective(node.call, "mpi")
    else:
        lowered = cuda_kernel(node.op)(node.call)
    return NodeWork(workspace=(*node.workspace, *lowered.workspace), lowered=lowered)


def bind_work(
    bound: BoundGraph,
    node: BoundNode,
    work: NodeWork,
    slots: Mapping[str, Pointer],
    scratch: tuple[Pointer, ...],
    spare: Mapping[int, Pointer],
) -> list[Work]:
    """The node's work in order, with operands replaced by pointers; `spare` has the places of unnamed outputs."""
    if work.code is not None:
        return [_launch(node, work.code, slots, scratch)]
    if work.function is not None:
        assert node.call is not None
        # Absent inputs at the end are no inputs of the call.
        inputs = tuple(_array(bound, name, slots) for name in node.inputs[: len(node.call.inputs)])
        places = [spare.get(i) if name is None else slots.get(name) for i, name in enumerate(node.outputs)]
        outputs = tuple(
            ArrayRef(place, kind.dtype, kind.shape)
            for place, kind in zip(places, node.call.outputs, strict=False)
            if place is not None
        )
        return [HostCall(work.function, inputs, outputs)]
    from kgrun.runtime.lower.placing import placed

    assert work.lowered is not None
    own = scratch[len(node.workspace) :]

    def pointer(operand: Operand) -> Pointer | None:
        if operand.role == "workspace":
            base = own[operand.index]
        else:
            name = (node.inputs if operand.role == "input" else node.outputs)[operand.index]
            found = slots.get(name) if name is not None else None
            if found is None and operand.role == "output":
                found = spare.get(operand.index)
            if found is None:
                return None
            base = found
        return Pointer(base.buffer, base.offset + operand.offset)

    placed_work = [placed(item, pointer) for item in work.lowered.work]
    # An output that took over its input's memory has its bytes already.
    return [item for item in placed_work if not (isinstance(item, Copy) and item.target == item.source)]


def _array(bound: BoundGraph, name: str | None, slots: Mapping[str, Pointer]) -> ArrayRef | None:
    if name is None or name not in slots:
        return None
    kind = bound.tensors[name].type
    return ArrayRef(slots[name], kind.dtype, kind.shape)


def _launch(node: BoundNode, code: KernelCode, slots: Mapping[str, Pointer], scratch: tuple[Pointer, ...]) -> Launch:
    launch = node.launch
    assert launch is not None
    args: list[Pointer | Value | None] = []
    for argument in launch.args:
        match argument:
            case TensorArgument(name):
                args.append(slots.get(name))
            case ScalarArgument(_, data, align):
                args.append(Value(data, align))
            case NullArgument():
                args.append(None)
            case _:
                args.append(scratch[argument.index])
    return Launch(code, tuple(args), launch.grid, launch.block, launch.shared, launch.cluster, launch.cooperative)
