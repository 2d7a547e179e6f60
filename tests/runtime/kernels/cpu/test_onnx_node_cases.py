"""ONNX's own node tests on the CPU kernels: every case whose operators and dtypes kgrun has, outputs compared.

Each node is inferred twice: with every small input's value known, so that the folded value of its output is checked
against what the kernel computes, and with only the values that the schema asks for.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.dtypes import DTYPES, ONNX_DTYPES
from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.runtime.kernels.base import cpu_kernel, dynamic_kernel

onnx = pytest.importorskip("onnx")

Array = np.ndarray[Any, Any]
RTOL, ATOL = 1e-3, 1e-7
BFLOAT16_RTOL = 2**-6  # two units in the last place, as ONNX's own runner compares bfloat16
REACHED = 1631  # cases that pass; raise it when operators are added

DOMAINS = {"", "ai.onnx", "ai.onnx.preview.training"}

# Its expected output comes from softmax rounded to float16 at every step; kgrun accumulates in float32. Two units.
FLOAT16_STEPS = {"test_attention_4d_causal_fp16_expanded": 2**-9}

# Cases that the format cannot state, or whose random numbers nobody can reproduce.
LEFT_OUT = {
    "test_bernoulli": "random numbers of another generator",
    "test_training_dropout": "Dropout in training",
}


@functools.cache
def _cases() -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def _has_operators(case: Any) -> bool:
    ops = {node.op_type for node in case.model.graph.node}
    domains = {node.domain for node in case.model.graph.node}
    return ops <= set(all_schemas()) and domains <= DOMAINS and not case.model.functions


def _reason(case: Any) -> str | None:
    """Why a case whose operators kgrun has cannot be stated in it; None when it can."""
    for prefix, reason in LEFT_OUT.items():
        if case.name.startswith(prefix):
            return reason
    for data_set in case.data_sets:
        for value in (*data_set[0], *data_set[1]):
            kind = value.data_type if isinstance(value, onnx.TensorProto) else None
            name = (
                ONNX_DTYPES.get(kind, f"number {kind}") if kind else str(getattr(value, "dtype", type(value).__name__))
            )
            if name not in DTYPES:
                return f"element type {name}"
    for node in case.model.graph.node:
        for attribute in node.attribute:
            kind = attribute.t.data_type if attribute.HasField("t") else attribute.i if attribute.name == "to" else 1
            if kind not in ONNX_DTYPES:
                return f"element type number {kind}"
    return None


def _array(value: Any) -> Array:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _attributes(node: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            items = onnx.numpy_helper.to_array(value)
            found["dtype"] = ONNX_DTYPES[value.data_type]
            flat = items.reshape(-1).tolist()
            if node.op_type == "Constant":
                found |= {"shape": list(items.shape), "value": flat}
            else:
                found["value"] = flat[0]
        elif isinstance(value, bytes):
            found[attribute.name] = value.decode()
        else:
            found[attribute.name] = list(value) if isinstance(value, (list, tuple)) else value
    return found


def _type(array: Array, with_value: bool) -> TensorType:
    value = tuple(array.reshape(-1).tolist()) if with_value and array.size <= 1024 else None
    return TensorType(array.dtype.name, array.shape, value)


def _call(node: Any, arrays: list[Array | None], known: bool) -> OpCall:
    host = all_schemas()[node.op_type].host_inputs
    types = [None if a is None else _type(a, known or i in host) for i, a in enumerate(arrays)]
    return infer(node.op_type, node.name or node.op_type, types, _attributes(node), len(node.output))


def _run_node(node: Any, tensors: dict[str, Array]) -> None:
    arrays = [tensors[name] if name else None for name in node.input]
    call = _call(node, arrays, known=False)
    host = all_schemas()[node.op_type].host_inputs
    given = [None if i in host else a for i, a in enumerate(arrays)]
    if call.exact:
        outputs = [_poisoned(type_) for type_ in call.outputs]
        cpu_kernel(call.op)(call)(given, outputs)
    else:
        outputs = dynamic_kernel(call.op)(call)(given)
        bounds = [type_.shape for type_ in call.outputs]
        assert all(np.less_equal(found.shape, most).all() for found, most in zip(outputs, bounds, strict=True))
    known = _call(node, arrays, known=True)
    if not known.exact:
        known.outputs = tuple(_type(output, with_value=False) for output in outputs)
    for folded, output in zip(known.outputs, outputs, strict=True):
        assert (folded.dtype, folded.shape) == (output.dtype.name, output.shape)
        if folded.value is not None:
            expected = np.array(folded.value, output.dtype).reshape(output.shape)
            np.testing.assert_allclose(_comparable(output), _comparable(expected), rtol=1e-6, err_msg="folded value")
    tensors.update(zip(node.output, outputs, strict=True))


def _poisoned(type_: TensorType) -> Array:
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, type_.dtype, type_.dtype))
    return np.frombuffer(bytearray(b"\x5a") * type_.nbytes, dtype).reshape(type_.shape)


def _comparable(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.name in ("bfloat16", "float16") or array.itemsize == 1 else array


def _run(case: Any) -> None:
    graph = case.model.graph
    for inputs, expected in case.data_sets:
        tensors = {info.name: _array(value) for info, value in zip(graph.input, inputs, strict=True)}
        for node in graph.node:
            _run_node(node, tensors)
        for info, value in zip(graph.output, expected, strict=True):
            found, wanted = tensors[info.name], _array(value)
            assert (found.dtype.name, found.shape) == (wanted.dtype.name, wanted.shape)
            rtol = BFLOAT16_RTOL if found.dtype.name == "bfloat16" else FLOAT16_STEPS.get(case.name, RTOL)
            np.testing.assert_allclose(_comparable(found), _comparable(wanted), rtol=rtol, atol=ATOL)


def _names() -> list[str]:
    return sorted(name for name, case in _cases().items() if _has_operators(case))


@pytest.mark.parametrize("name", _names())
def test_onnx_node_case(name: str) -> None:
    reason = _reason(_cases()[name])
    if reason:
        pytest.skip(reason)
    _run(_cases()[name])


def test_no_onnx_case_got_lost() -> None:
    assert sum(_reason(_cases()[name]) is None for name in _names()) >= REACHED
