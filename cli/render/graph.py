"""What `validate` shows: the graph's summary, its nodes in execution order, its tensors with their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.documents import graph_fields, members, warning_rows
from kgrun.cli.render.table import Table
from kgrun.cli.render.text import count_text, shape_text
from kgrun.graphs.bound import BoundGraph, Warning

if TYPE_CHECKING:
    from kgrun.runtime.checks.target import KernelRow

Row = dict[str, Any]


def summary_line(bound: BoundGraph, warnings: int) -> str:
    """`saxpy: valid; 2 nodes, 5 tensors, 1 kernel, 0 warnings`."""
    return (
        f"{bound.source.name}: valid; {count_text(len(bound.nodes), 'node')},"
        f" {count_text(len(bound.tensors), 'tensor')}, {count_text(len(bound.source.kernels), 'kernel')},"
        f" {count_text(warnings, 'warning')}"
    )


def node_table(bound: BoundGraph) -> Table:
    """Nodes in execution order."""
    rows = [(n.name, n.op, n.stream, ", ".join(n.read_names()), ", ".join(n.written_names())) for n in bound.nodes]
    return Table("Nodes in execution order", ("node", "op", "stream", "inputs", "outputs"), rows, rest="nodes")


def tensor_table(bound: BoundGraph) -> Table:
    """Tensors with their types."""
    rows = [
        (name, tensor.role, shape_text(tensor.type.dtype, tensor.type.shape), f"{tensor.nbytes:,}")
        for name, tensor in bound.tensors.items()
    ]
    return Table("Tensors", ("tensor", "role", "type", ">bytes"), rows, rest="tensors")


def tensor_rows(bound: BoundGraph) -> list[Row]:
    """A row each tensor."""
    return [
        {
            "name": name,
            "role": tensor.role,
            "dtype": tensor.type.dtype,
            "shape": list(tensor.type.shape),
            "nbytes": tensor.nbytes,
            "output": tensor.is_output,
            "discovered": tensor.discovered,
        }
        for name, tensor in bound.tensors.items()
    ]


def kernel_table(kernels: Sequence[KernelRow], target: str) -> Table:
    """Kernels as compiled for an architecture."""
    rows = [
        (
            k.kernel,
            k.language,
            ", ".join(k.params),
            _number(k.registers),
            f"{k.static_shared:,}",
            _number(k.max_threads),
        )
        for k in kernels
    ]
    columns = ("kernel", "language", "parameters", ">registers", ">static shared", ">most threads")
    return Table(f"Kernels for {target}", columns, rows, rest="kernels")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def validate_document(
    bound: BoundGraph, target: str | None, kernels: Sequence[KernelRow], warnings: Sequence[Warning]
) -> Row:
    """`validate --json`."""
    return graph_fields(bound) | {
        "nodes": [
            {
                "name": node.name,
                "op": node.op,
                "stream": node.stream,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
            }
            for node in bound.nodes
        ],
        "tensors": tensor_rows(bound),
        "outputs": list(bound.outputs),
        "target": target,
        "kernels": [members(kernel) | {"params": list(kernel.params)} for kernel in kernels],
        "warnings": warning_rows(warnings),
    }
