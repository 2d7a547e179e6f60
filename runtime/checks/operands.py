"""The tensors and workspaces that a custom kernel may touch: their bytes, and what the node promises of them."""

from __future__ import annotations

from dataclasses import replace

from kgrun.graphs.bound import BoundNode, TensorArgument, WorkspaceArgument
from kgrun.graphs.records import dataclass
from kgrun.runtime.program import Launch, Pointer, Program, Step


@dataclass(frozen=True, slots=True)
class Operand:
    """One range of bytes that a launch gets the address of.

    Attributes:
        name: the tensor's, or `node.workspace[i]`.
        dtype, shape: of the tensor; a workspace is bytes.
        readonly: only an input, not taken over by an output.
        initialised: holds data before the launch: inputs, and what the node clears.
        output: is to hold a result afterwards.
    """

    name: str
    pointer: Pointer
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    readonly: bool
    initialised: bool
    output: bool


def launch_operands(program: Program, step: Step) -> tuple[Operand, ...]:
    """Operands of a custom kernel's step, one a range of bytes; none for other steps."""
    node = program.node_of(step)
    if node.launch is None or not isinstance(step.work, Launch):
        return ()
    found: dict[int, Operand] = {}
    for argument, pointer in zip(node.launch.args, step.work.args, strict=True):
        if not isinstance(pointer, Pointer):
            continue
        operand = _operand(program, node, argument, pointer)
        if operand is None or operand.nbytes == 0:
            continue
        before = found.get(pointer.buffer)
        found[pointer.buffer] = operand if before is None else _merged(before, operand)
    return tuple(found.values())


def _operand(program: Program, node: BoundNode, argument: object, pointer: Pointer) -> Operand | None:
    match argument:
        case TensorArgument(name):
            kind = program.graph.tensors[name].type
            output, taken = name in node.outputs, name in node.inplace.values()
            filled = name in node.inputs or name in node.inplace or name in node.clear
            readonly = not output and not taken
            return Operand(name, pointer, kind.nbytes, kind.dtype, kind.shape, readonly, filled, output)
        case WorkspaceArgument(index):
            name, nbytes = program.buffers[pointer.buffer].name, node.workspace[index]
            return Operand(
                name, pointer, nbytes, "uint8", (nbytes,), False, index in node.cleared_workspace, output=False
            )
    return None


def _merged(first: Operand, second: Operand) -> Operand:
    """Two names of the same bytes: what either may do, both may."""
    larger = max(first, second, key=lambda each: each.nbytes)
    return replace(
        larger,
        readonly=first.readonly and second.readonly,
        initialised=first.initialised or second.initialised,
        output=first.output or second.output,
    )


def element_text(name: str, shape: tuple[int, ...], index: int) -> str:
    """`y[3, 5]` for a linear index."""
    rest, places = index, []
    for extent in reversed(shape):
        rest, place = divmod(rest, max(extent, 1))
        places.append(place)
    return f"{name}[{', '.join(map(str, reversed(places)))}]" if shape else name
