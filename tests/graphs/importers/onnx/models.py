"""Small ONNX models for tests, written in ONNX's text form, and two ways to run them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.sessions import open_session

Array = np.ndarray[Any, Any]


def save_text(path: Path, text: str, opset: int = 21, header: str = "") -> Path:
    """Write the model of `text` (a graph in ONNX's text form, functions after it)."""
    import onnx

    imports = header or f'ir_version: 10, opset_import: ["" : {opset}]'
    path.write_bytes(onnx.parser.parse_model(f"<{imports}>\n{text}").SerializeToString())
    return path


def run(graph: KernelGraph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of `graph` on the CPU."""
    with open_session(graph, device="cpu", values=dict(inputs)) as session:
        return dict(session.run(inputs).outputs)


def reference(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by ONNX's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = ReferenceEvaluator(str(path))
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(inputs)), strict=True))


def agree(path: Path, inputs: Mapping[str, Array], dims: Mapping[str, int] | None = None) -> KernelGraph:
    """Check that kgrun computes what ONNX's evaluator does, with `dims` bound now or later; returns the graph."""
    graph = onnx_graph(path, dims=dims)
    wanted = reference(path, inputs)
    found = run(graph, inputs)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
    return graph


def floats(*shape: int, seed: int = 0) -> Array:
    """Normal random float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ops(graph: KernelGraph) -> list[str]:
    """Operators of the graph's nodes, in order."""
    return [getattr(node, "op", "") for node in graph.nodes]
