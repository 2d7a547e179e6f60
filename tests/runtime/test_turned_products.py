"""Products that read through Transposes, run on the CPU: right values, the same bits in every memory mode."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.divergence import cpu_reference, divergences
from kgrun.runtime.program import Transfer
from kgrun.runtime.session import Session
from kgrun.runtime.sessions import open_session
from tests.support import graph, node, tensor

Array = np.ndarray[Any, Any]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32", "uint64"]
MODES: dict[str, dict[str, Any]] = {
    "planned": {},
    "none": {"memory": "none"},
    "pool": {"memory": "pool"},
    "single": {"memory": "single"},
}
# The operands as products take them, and which of them are made by a Transpose.
CASES: dict[str, tuple[str, list[list[int]], tuple[int, ...], dict[str, Any]]] = {
    "a row": ("MatMul", [[1, 40], [40, 30]], (1,), {}),
    "right": ("MatMul", [[5, 9], [9, 7]], (1,), {}),
    "left": ("MatMul", [[5, 9], [9, 7]], (0,), {}),
    "both": ("MatMul", [[5, 9], [9, 7]], (0, 1), {}),
    "batches": ("MatMul", [[2, 3, 4, 9], [2, 3, 9, 5]], (0, 1), {}),
    "broadcast batches": ("MatMul", [[2, 1, 4, 9], [3, 9, 5]], (0, 1), {}),
    "batches times one matrix": ("MatMul", [[2, 3, 4, 9], [9, 5]], (1,), {}),
    "turned batches times one matrix": ("MatMul", [[2, 3, 4, 9], [9, 5]], (0,), {}),
    "one matrix times batches": ("MatMul", [[4, 9], [2, 9, 5]], (0, 1), {}),
    "a vector": ("MatMul", [[9], [2, 9, 5]], (1,), {}),
    "a matrix times a vector": ("MatMul", [[2, 4, 9], [9]], (0,), {}),
    "nothing summed": ("MatMul", [[4, 0], [0, 5]], (1,), {}),
    "added": ("Gemm", [[4, 9], [9, 5], [5]], (0, 1), {"alpha": 2.0, "beta": 3.0}),
    "flipped": ("Gemm", [[9, 4], [5, 9]], (0, 1), {"transA": 1, "transB": 1}),
    "one flipped": ("Gemm", [[9, 4], [9, 5]], (1,), {"transA": 1}),
}


def product(case: str, dtype: str, copies: int = 1) -> KernelGraph:
    """Operands that steps make, so that they may lie anywhere; `copies` of the same after one another."""
    op, shapes, turned, attributes = CASES[case]
    tensors: dict[str, Any] = {}
    nodes: list[Any] = []
    for i, shape in enumerate(shapes):
        lying = [*shape[:-2], shape[-1], shape[-2]] if i in turned else shape
        tensors[f"x{i}"] = tensor("input", lying, dtype, init={"integers": [0, 9], "seed": i})
        nodes.append(node(f"make{i}", [f"x{i}", f"x{i}"], [f"a{i}"], op="Add"))
        if i in turned:
            perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            nodes.append(node(f"turn{i}", [f"a{i}"], [f"t{i}"], op="Transpose", attributes={"perm": perm}))
    inputs = [f"t{i}" if i in turned else f"a{i}" for i in range(len(shapes))]
    nodes.append(node("product", inputs, ["y"], op=op, attributes=attributes))
    return graph(nodes, tensors, ["y"])


def given(made: KernelGraph, dtype: str) -> dict[str, Array]:
    """Elements whose products round, where the type rounds."""
    rng = np.random.default_rng(0)
    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    shapes = {name: [int(str(n)) for n in spec.shape or ()] for name, spec in made.tensors.items() if name[0] == "x"}
    if kind.kind in "iu":
        return {name: rng.integers(0, 99, shape).astype(kind) for name, shape in shapes.items()}
    return {name: rng.standard_normal(shape).astype(kind) for name, shape in shapes.items()}


def wanted(case: str, arrays: dict[str, Array]) -> Array:
    op, shapes, turned, attributes = CASES[case]
    found = [(arrays[f"x{i}"] + arrays[f"x{i}"]).astype(np.float64) for i in range(len(shapes))]
    found = [x.swapaxes(-1, -2) if i in turned else x for i, x in enumerate(found)]
    a, b = (x.T if attributes.get(f"trans{'AB'[i]}") else x for i, x in enumerate(found[:2]))
    made = np.matmul(a, b) * attributes.get("alpha", 1)
    return np.asarray(made + found[2] * attributes.get("beta", 1) if op == "Gemm" and len(found) > 2 else made)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_the_product_in_the_same_bits_in_every_mode(case: str, dtype: str) -> None:
    made = product(case, dtype)
    arrays = given(made, dtype)
    found: dict[str, Array] = {}
    for mode, options in MODES.items():
        with open_session(made, device="cpu", values=arrays, **options) as session:
            found[mode] = session.run(arrays).outputs["y"]
    unit = {"float32": 1e-5, "float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 0)
    reference = wanted(case, arrays)
    assert (
        np.abs(found["planned"].astype(np.float64) - reference).max(initial=0) <= unit * (1 + np.abs(reference)).max()
    )
    assert {mode for mode in found if found[mode].tobytes() != found["planned"].tobytes()} == set()


@pytest.mark.parametrize("case", ["batches", "added"])
def test_halves_and_integers_are_read_turned_on_the_cpu(case: str) -> None:
    for dtype in ("float16", "int32"):
        with Session(product(case, dtype), device="cpu") as session:
            assert set(session.program.turned) == {"t0", "t1"}
            assert not {"turn0", "turn1"} & {step.name for step in session.program.steps}


def turned_pair() -> tuple[KernelGraph, dict[str, Array]]:
    made = product("right", "float16")
    return made, given(made, "float16")


def test_a_tensor_that_no_step_makes_is_read_as_the_graph_means_it() -> None:
    made, arrays = turned_pair()
    with Session(made, device="cpu", values=arrays, memory="none") as session:
        session.run(arrays)
        assert np.array_equal(session.output("t1"), (arrays["x1"] + arrays["x1"]).T)


def test_it_is_compared_like_any_other() -> None:
    made, arrays = turned_pair()
    reference = dict(cpu_reference(made, arrays, {}).arrays)
    assert np.array_equal(reference["t1"], (arrays["x1"] + arrays["x1"]).T)
    with Session(made, device="cpu", values=arrays) as session:
        session.run(arrays)
        rows = divergences(session, reference, 0, 0)
        reference["t1"] = reference["t1"] + 1
        worse = divergences(session, reference, 0, 0)
    assert [(row.tensor, row.ok) for row in rows] == [("a0", True), ("a1", True), ("t1", True), ("y", True)]
    assert [row.node for row in worse if not row.ok] == ["turn1"]


def test_what_is_read_turned_may_wait_on_the_host_until_then() -> None:
    made, arrays = turned_pair()
    document = made.model_dump(by_alias=True, exclude_unset=True)
    names = ["x0", *(f"between{i}" for i in range(4))]
    document["nodes"][-1:-1] = [node(f"n{i}", [names[i]], [names[i + 1]], op="Neg") for i in range(4)]
    document["outputs"] = ["y", names[-1]]
    document["nodes"][-1]["after"] = ["n3"]
    plain = KernelGraph.model_validate(document)
    document["tensors"]["a1"] = {"offload": "always"}
    away = KernelGraph.model_validate(document)
    with Session(plain, device="cpu", values=arrays) as session:
        stayed = session.run(arrays).outputs["y"]
    with Session(away, device="cpu", values=arrays) as session:
        assert session.program.offload is not None
        assert list(session.program.turned) == ["t1"]
        assert any(isinstance(step.work, Transfer) for step in session.program.steps)
        came_back = session.run(arrays).outputs["y"]
    assert came_back.tobytes() == stayed.tobytes()
