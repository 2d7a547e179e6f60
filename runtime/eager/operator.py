"""A single operator as a graph of one node: what `kgrun run-op` runs, and a convenient way to call one from Python.

report = run_operator("Conv", [x, w], {"pads": [1, 1, 1, 1]}, device="cpu")
print(report.outputs["y0"], report.total)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.operators.base import OpSchema
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.report import RunReport

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of a single operator: an array, or only its type, for which random elements are made."""

    dtype: str
    shape: tuple[int, ...]
    array: Array | None = None


def operator_graph(
    op: str, operands: Sequence[Operand | None], attributes: Mapping[str, Any], outputs: int
) -> tuple[KernelGraph, dict[str, Array]]:
    """The graph of one node with inputs `x0`, `x1` … and outputs `y0`, `y1` …, and the arrays given for inputs.

    None stands for an optional input that is absent.

    Raises:
        GraphError: KG31x for operands that no tensor can be, and for attributes of a kind that no operator takes.
    """
    tensors: dict[str, Any] = {}
    given: dict[str, Array] = {}
    names: list[str | None] = []
    for i, operand in enumerate(operands):
        if operand is None:
            names.append(None)
            continue
        name = f"x{i}"
        names.append(name)
        tensors[name] = {"role": "input", "dtype": operand.dtype, "shape": list(operand.shape)}
        if operand.array is None:
            tensors[name]["init"] = random_init(operand.dtype)
        else:
            given[name] = operand.array
    results = [f"y{i}" for i in range(outputs)]
    node = {"name": op, "op": op, "inputs": names, "outputs": results, "attributes": dict(attributes)}
    document = {"kgrun": 1, "name": op, "tensors": tensors, "nodes": [node], "outputs": results}
    from kgrun.graphs.load.graph import made_graph

    return made_graph(document), given


def default_outputs(schema: OpSchema) -> int:
    """How many outputs are wanted unless told otherwise: the least, but one where the operator has any."""
    least, most = schema.outputs
    return max(least, min(most, 1))


def random_init(dtype: str) -> dict[str, Any]:
    """The rule that makes elements for an operand without data."""
    kind = DTYPES[dtype].kind
    if kind == "float":
        return {"uniform": [-1, 1]}
    return {"integers": [0, 2 if kind == "bool" else 100]}


def run_operator(
    op: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    outputs: int | None = None,
    device: str = "auto",
    iterations: int | None = None,
    **settings: Any,
) -> RunReport:
    """Run one operator; its results are `report.outputs["y0"]`, `"y1"` …

    Args:
        inputs: arrays by position, None for an optional input that is absent.
        outputs: how many results are wanted, see `default_outputs`.
        settings: as `EagerSession` has them.

    Raises:
        KgrunError: inputs or attributes that the operator does not take, faults of the device.
    """
    from kgrun.graphs.operators import lookup
    from kgrun.runtime.sessions import SINGLE, open_session

    operands = [None if array is None else Operand(array.dtype.name, array.shape, array) for array in inputs]
    count = default_outputs(lookup(op)) if outputs is None else outputs
    graph, given = operator_graph(op, operands, attributes or {}, count)
    with open_session(graph, memory=SINGLE, device=device, values=given, **settings) as session:
        return session.run(iterations=iterations)
