"""Checks of a bound graph: outputs, in-place requests, launches, and what is worth a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from kgrun.graphs.bind import overwriting
from kgrun.graphs.bind.unsupported import refused
from kgrun.graphs.bound import BoundGraph, BoundNode, BoundTensor, TensorArgument, Warning
from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.errors import DoesNotFit, GraphError, PathPart, Place, did_you_mean
from kgrun.graphs.limits import check_launch, limits_of

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


# No machine has so much, and every sum and offset below stays inside 64 bits.
MAX_BYTES = 1 << 56


def graph_outputs(graph: KernelGraph, tensors: Mapping[str, BoundTensor]) -> tuple[str, ...]:
    """Output names in order: the file's `outputs`, else the tensors of role output.

    Raises:
        GraphError: KG343 for an unknown name, KG353 for one named twice or left out, KG346 for none at all.
    """
    marked = [name for name, spec in graph.tensors.items() if spec.role == "output"]
    names = graph.outputs or marked
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name not in tensors:
            raise GraphError(
                f"graph output {name!r} is not defined",
                code="KG343",
                where=graph.place("outputs", i) if graph.outputs else graph.place("tensors", name),
                help=did_you_mean(name, tensors),
            )
        if name in seen:
            raise GraphError(f"output {name!r} is named twice", code="KG353", where=graph.place("outputs", i))
        seen.add(name)
    for name in marked:
        if name not in seen:
            raise GraphError(
                f"{name!r} has role output but is not among `outputs`",
                code="KG353",
                where=graph.place("tensors", name, "role"),
            )
    updates = any(node.inplace or getattr(node, "op", None) == "Send" for node in graph.nodes)
    if not names and graph.nodes and not updates:
        raise GraphError(
            "the graph has no outputs", code="KG346", where=graph.place("outputs"), help="name them under `outputs`"
        )
    return tuple(names)


def check(bound: BoundGraph, target: str, *, run_time: bool = False) -> tuple[Warning, ...]:
    """All checks that need types; with `run_time`, of a graph that runs node by node.

    Raises:
        UsageError: KG221 for an unknown `target`, also where nothing is launched.
        DoesNotFit: KG400 for sizes beyond any memory.
        GraphError: the first fault; `others` has the rest.
    """
    limits_of(target)
    check_sizes(bound)
    faults: list[GraphError] = list(refused(bound.source, run_time=run_time))
    for node in bound.nodes:
        faults.extend(node_faults(bound, node, target))
    faults.extend(_sharing_faults(bound))
    if faults:
        faults[0].others = tuple(faults[1:])
        raise faults[0]
    return tuple(_warnings(bound))


def node_faults(bound: BoundGraph, node: BoundNode, target: str) -> Iterator[GraphError]:
    """What is wrong with one node: in-place requests, clears, its launch."""
    yield from _inplace_faults(bound, node)
    yield from overwriting.refused(bound, node)
    yield from _clear_faults(bound, node)
    if node.launch is not None:
        yield from _launch_faults(bound, node, target)


def check_sizes(bound: BoundGraph) -> None:
    """All tensors and workspaces together stay below MAX_BYTES; so do the other extents of a tensor that is empty.

    Raises:
        DoesNotFit: KG400 where they do not.
    """
    total = 0
    for name, tensor in bound.tensors.items():
        spanned = prod(extent for extent in tensor.type.shape if extent) * itemsize(tensor.type.dtype)
        total += tensor.nbytes
        if max(spanned, total) >= MAX_BYTES:
            shape = list(tensor.type.shape)
            raise _too_much(f"{name!r} ({tensor.type.dtype} {shape})", bound.source.place("tensors", name))
    for node in bound.nodes:
        total += sum(node.workspace)
        if total >= MAX_BYTES:
            raise _too_much(f"the workspace of {node.name!r}", bound.source.place("nodes", node.position, "workspace"))


def _too_much(what: str, where: Place) -> DoesNotFit:
    return DoesNotFit(
        f"with {what} the graph takes more bytes than any memory holds ({MAX_BYTES:,})",
        code="KG400",
        where=where,
        help="check the dimensions",
    )


def _fault(
    bound: BoundGraph, node: BoundNode, code: str, message: str, *path: PathPart, help: str | None = None
) -> GraphError:
    return GraphError(message, code=code, where=bound.source.place("nodes", node.position, *path), help=help)


def _inplace_faults(bound: BoundGraph, node: BoundNode) -> Iterator[GraphError]:
    taken: set[str] = set()
    for output, name in node.inplace.items():
        path = ("inplace", output)
        if output not in node.outputs or name not in node.inputs:
            what = f"{output!r} is no output" if output not in node.outputs else f"{name!r} is no input"
            yield _fault(bound, node, "KG354", f"{what} of {node.name!r}", *path)
            continue
        target, source = bound.tensors[output], bound.tensors[name]
        if name in taken:
            yield _fault(bound, node, "KG354", f"two outputs of {node.name!r} take over {name!r}", *path)
        taken.add(name)
        if target.nbytes != source.nbytes:
            yield _fault(
                bound,
                node,
                "KG354",
                f"{output!r} ({target.nbytes:,} bytes) cannot take over {name!r} ({source.nbytes:,} bytes)",
                *path,
            )
        if source.role in ("input", "constant"):
            yield _fault(
                bound,
                node,
                "KG354",
                f"{node.name!r} would overwrite {source.role} {name!r}",
                *path,
                help="an input keeps its bytes from run to run; make it a parameter if it is to be updated",
            )
        if source.is_output:
            yield _fault(
                bound,
                node,
                "KG354",
                f"{node.name!r} would overwrite graph output {name!r}",
                *path,
                help=f"make {output!r} the output instead",
            )


def _clear_faults(bound: BoundGraph, node: BoundNode) -> Iterator[GraphError]:
    for i, name in enumerate(node.clear):
        if name not in node.outputs:
            yield _fault(
                bound, node, "KG354", f"{name!r} is to be cleared but is no output of {node.name!r}", "clear", i
            )
        elif name in node.inplace:
            yield _fault(bound, node, "KG354", f"{name!r} cannot be both cleared and in place", "clear", i)


def _launch_faults(bound: BoundGraph, node: BoundNode, target: str) -> Iterator[GraphError]:
    launch = node.launch
    assert launch is not None
    kernel = bound.source.kernels[launch.kernel]
    problems = check_launch(
        limits_of(target), launch.grid, launch.block,
        static_shared=kernel.static_shared or 0, dynamic_shared=launch.shared,
        registers=kernel.registers or 0, cluster=launch.cluster,
    )  # fmt: skip
    for message, path in problems:
        yield _fault(bound, node, "KG360", f"launch of {node.name!r}: {message}", *path)
    if kernel.params is not None and len(kernel.params) != len(launch.args):
        yield _fault(
            bound,
            node,
            "KG361",
            f"kernel {launch.kernel!r} has {len(kernel.params)} parameters, {node.name!r} passes {len(launch.args)}",
            "args",
        )
    passed = {a.name for a in launch.args if isinstance(a, TensorArgument)}
    for i, name in enumerate(node.outputs):
        if name is not None and name not in passed and node.inplace.get(name) not in passed:
            yield _fault(
                bound,
                node,
                "KG348",
                f"output {name!r} is not among the arguments of {node.name!r}",
                "outputs",
                i,
                help="a kernel can only write what is passed to it",
            )


def _sharing_faults(bound: BoundGraph) -> Iterator[GraphError]:
    graph = bound.source
    for name, spec in graph.tensors.items():
        mine, theirs = bound.tensors.get(name), bound.tensors.get(spec.alias_of or "")
        if spec.alias_of is not None and mine is not None and theirs is not None and mine.nbytes > theirs.nbytes:
            place = graph.place("tensors", name, "alias_of")
            yield GraphError(f"{name!r} is larger than {spec.alias_of!r}", code="KG354", where=place)
    seen: dict[str, int] = {}
    for g, group in enumerate(graph.contiguous):
        for i, name in enumerate(group):
            place = graph.place("contiguous", g, i)
            if name not in bound.tensors:
                yield GraphError(
                    f"tensor {name!r} is not defined", code="KG343", where=place, help=did_you_mean(name, bound.tensors)
                )
            if name in seen:
                yield GraphError(
                    f"{name!r} stands in two contiguous groups, or twice in one", code="KG355", where=place
                )
            seen[name] = g


def _warnings(bound: BoundGraph) -> Iterator[Warning]:
    graph = bound.source
    for name, tensor in bound.tensors.items():
        path = ("tensors", name)
        if tensor.producer is None and not tensor.used and not (tensor.is_output and name in bound.fed):
            if tensor.is_output:
                yield Warning(
                    "W-LONELY-WEIGHT",
                    f"{tensor.role} {name!r} is a graph output but feeds no kernel; it is read from the host",
                    path,
                )
            elif not tensor.consumers:
                yield Warning("W-UNUSED", f"{tensor.role} {name!r} is used by no node; it gets no memory", path)
        if tensor.discovered and tensor.consumers:
            yield Warning(
                "W-DISCOVERED", f"{tensor.role} {name!r} is not declared as an input; it was discovered", path
            )
        if tensor.producer is not None and not tensor.consumers and not tensor.is_output:
            node = bound.nodes[tensor.producer]
            if len(node.written_names()) == 1 and name not in node.inplace:
                yield Warning("W-UNREAD", f"nothing reads {name!r}, made by {node.name!r}", ("nodes", node.position))
    for name in graph.tensors:
        if name not in bound.tensors:
            yield Warning("W-UNUSED", f"tensor {name!r} is used by no node", ("tensors", name))
    read = {queue.name for queue in bound.queues}
    for name in (n for n in graph.queues if n not in read):
        yield Warning("W-UNUSED", f"queue {name!r} is read by no node", ("queues", name))
    launched = {node.op for node in bound.nodes if node.launch is not None}
    for name in (n for n in graph.kernels if n not in launched):
        yield Warning("W-UNUSED", f"kernel {name!r} is launched by no node", ("kernels", name))
    for node in bound.nodes:
        if node.launch is None:
            continue
        passed = {a.name for a in node.launch.args if isinstance(a, TensorArgument)}
        for i, unpassed in enumerate(node.inputs):
            if unpassed is not None and unpassed not in passed:
                yield Warning(
                    "W-UNPASSED",
                    f"input {unpassed!r} is not among the arguments of {node.name!r}",
                    ("nodes", node.position, "inputs", i),
                )
