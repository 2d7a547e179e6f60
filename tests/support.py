"""Short ways to write graphs, programs and plans in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kgrun.graphs.bind import bind
from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.lower import lower
from kgrun.runtime.memory.plan_types import MemoryPlan, Placement
from kgrun.runtime.program import Program

KERNEL = "__global__ void k() {}"


def tensor(
    role: str | None = None, shape: Sequence[int | str] = (256,), dtype: str = "uint8", **more: Any
) -> dict[str, Any]:
    """A tensor's record; 256 bytes unless told otherwise."""
    row: dict[str, Any] = {"dtype": dtype, "shape": list(shape), **more}
    return row if role is None else {"role": role, **row}


def node(name: str, inputs: Sequence[Any] = (), outputs: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    """A launch of the kernel `k`, or an operator where `op` is given."""
    row: dict[str, Any] = {"name": name, "inputs": list(inputs), "outputs": list(outputs), **more}
    return row if "op" in more else {"kernel": "k", "grid": [1], "block": [32], **row}


def chain_of(length: int, size: int = 1024) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Nodes and tensors of `length` kernels in a row, each reading the one before: x, t0, t1, ..."""
    tensors = {"x": tensor("input", [size])} | {f"t{i}": tensor(None, [size]) for i in range(length)}
    names = ["x", *(f"t{i}" for i in range(length))]
    return [node(f"k{i}", [names[i]], [names[i + 1]]) for i in range(length)], tensors


def collective_beside_a_branch() -> list[dict[str, Any]]:
    """Nodes from `x` to `y`: a collective makes u of t while others make w of x; both are joined to p."""
    return [
        node("a", ["x"], ["t"]),
        node("comm", ["t"], ["u"], collective={}),
        node("b", ["x"], ["v"]),
        node("c", ["v"], ["w"]),
        node("join", ["w", "u"], ["p"]),
        node("d", ["p"], ["q"]),
        node("e", ["q"], ["y"]),
    ]


def graph(
    nodes: Sequence[Mapping[str, Any]],
    tensors: Mapping[str, Mapping[str, Any]] | None = None,
    outputs: Sequence[str] = (),
    **top: Any,
) -> KernelGraph:
    """A graph; kernel outputs that are not declared get 256 bytes."""
    declared: dict[str, Any] = dict(tensors or {})
    for row in nodes:
        if "kernel" in row:
            for name in row["outputs"]:
                if name is not None:
                    declared.setdefault(name, tensor())
    kernels = {"k": {"source": KERNEL, "entry": "k"}} if any("kernel" in row for row in nodes) else {}
    return KernelGraph.model_validate(
        {"kgrun": 1, "kernels": kernels, "tensors": declared, "nodes": list(nodes), "outputs": list(outputs), **top}
    )


def bound(*args: Any, **kwargs: Any) -> BoundGraph:
    """`graph(...)` bound with its defaults."""
    return bind(graph(*args, **kwargs))


def program(*args: Any, target: str = "cuda", **kwargs: Any) -> Program:
    """`graph(...)` bound and lowered."""
    return lower(bound(*args, **kwargs), target)


def planned(made: Program, **options: Any) -> tuple[MemoryPlan, dict[str, Placement]]:
    """The plan of a program, and its placements by the name of every tensor and workspace they hold."""
    from kgrun.runtime.memory.plan import plan_memory

    plan = plan_memory(made, **options)
    by_name: dict[str, Placement] = {}
    for placement in plan.placements:
        by_name[placement.name] = placement
        by_name.update(dict.fromkeys(made.buffers[placement.buffer].tensors, placement))
    return plan, by_name


def overlap(a: Placement, b: Placement) -> bool:
    """Whether two placements share bytes."""
    return a.space == b.space and a.offset < b.offset + b.aligned and b.offset < a.offset + a.aligned
