"""ONNX's own node tests of control and of data-dependent shapes, run node by node, outputs compared."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.control import CONTROL
from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators import all_schemas
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.eager import EagerSession

onnx = pytest.importorskip("onnx")

Array = np.ndarray[Any, Any]
REACHED = 51  # cases that run; raise it when operators are added


@functools.cache
def _cases() -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node") if _wanted(case)}


def _ops(graph: Any) -> set[str]:
    found = {node.op_type for node in graph.node}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _ops(attribute.g)
    return found


def _wanted(case: Any) -> bool:
    ops = _ops(case.model.graph)
    dynamic = {name for name, schema in all_schemas().items() if schema.dynamic}
    if not ops & (set(CONTROL) | dynamic) or not ops <= {*all_schemas(), *CONTROL} or case.model.functions:
        return False
    values = [value for data_set in case.data_sets for value in (*data_set[0], *data_set[1])]
    return all(getattr(value, "dtype", None) is not None and value.dtype.name in DTYPES for value in values)


@pytest.mark.parametrize("name", sorted(_cases()))
def test_S82_onnx_case_runs_node_by_node(name: str) -> None:
    from tests.runtime.eager.onnx_graphs import document

    case = _cases()[name]
    if "scan_sum" in name:
        pytest.skip("Scan before opset 9 has a batch dimension and sequence lengths")
    graph = KernelGraph.model_validate(document(case.model))
    for inputs, expected in case.data_sets:
        given = {info.name: np.asarray(value) for info, value in zip(case.model.graph.input, inputs, strict=True)}
        with EagerSession(graph, device="cpu", values=given) as session:
            outputs = session.run(poison=True).outputs
        for info, wanted in zip(case.model.graph.output, expected, strict=True):
            found = outputs[info.name]
            assert (found.dtype, found.shape) == (wanted.dtype, np.shape(wanted)), info.name
            wide = np.float64 if wanted.dtype.name in ("bfloat16", "float16") else wanted.dtype
            rtol = 1e-2 if wanted.dtype.name == "bfloat16" else 1e-3
            np.testing.assert_allclose(found.astype(wide), wanted.astype(wide), rtol=rtol, atol=1e-6)


def test_no_control_case_got_lost() -> None:
    assert len(_cases()) >= REACHED
