"""Operator schemas held against ONNX's own definitions, and the registry's promises."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kgrun.graphs.dtypes import DTYPES, ONNX_DTYPES
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import all_schemas, infer, lookup
from kgrun.graphs.operators.base import InferenceError, TensorType
from kgrun.graphs.operators.scalar_code import operand_name, scalar_expression
from tests.runtime.kernels.cuda.operator_calls import calls_of

OPSET = 28
NAMES = sorted(all_schemas())
ONNX_S = [name for name in NAMES if all_schemas()[name].domain != "kgrun"]

# The operators of the tiers that real models need; none may go missing.
# fmt: off
TIER_1 = frozenset({
    "Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Exp", "Log", "Neg", "Abs", "Reciprocal", "Erf", "Relu", "Sigmoid",
    "Tanh", "Clip", "Min", "Max", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Not",
    "Xor", "Where", "Cast", "Identity", "Constant", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten",
    "Concat", "Slice", "Split", "Gather", "Expand", "Shape", "Size", "ConstantOfShape", "Range", "Softmax",
    "MatMul", "Gemm", "Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization",
    "LayerNormalization", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "Pad", "IsNaN", "Gelu", "Dropout",
})
# fmt: on
WITHOUT = {"Constant": {"value_string", "value_strings", "sparse_value"}}
MOVING = {"movement", "selection", "indexing", "rearrangement"}
FLOAT8 = {"float8_e4m3fn", "float8_e5m2"}
TENSOR_ATTRIBUTES = {"value", "dtype", "shape"}  # a tensor attribute is written as these


def _onnx_schema(name: str) -> Any:
    defs = pytest.importorskip("onnx").defs
    if defs.onnx_opset_version() < OPSET:
        pytest.skip(f"this onnx ends before opset {OPSET}")
    domain = all_schemas()[name].domain
    return defs.get_schema(name, 1 if domain else OPSET, domain)


def test_tier_1_is_complete() -> None:
    assert set(NAMES) >= TIER_1


@pytest.mark.parametrize("name", ONNX_S)
def test_dtypes_are_onnx_s(name: str) -> None:
    schema = _onnx_schema(name)
    if not schema.inputs:
        pytest.skip("an operator without inputs")
    spelled = {f"tensor({text})": dtype for text, dtype in _type_strings().items()}
    types = {spelled[text] for text in schema.inputs[0].types if text in spelled}
    ours = all_schemas()[name].dtypes
    if all_schemas()[name].family in MOVING:  # bytes are bytes: float8 may be moved where ONNX leaves it out
        ours, types = ours - FLOAT8, types - FLOAT8
    assert ours == types


def _type_strings() -> dict[str, str]:
    names = {dtype: dtype.replace("_", "") for dtype in ONNX_DTYPES.values()}
    names |= {"float32": "float", "float64": "double"}
    return {text: dtype for dtype, text in names.items()}


@pytest.mark.parametrize("name", ONNX_S)
def test_arity_is_onnx_s(name: str) -> None:
    theirs, ours = _onnx_schema(name), all_schemas()[name]
    assert ours.inputs[0] <= theirs.min_input  # fewer where an older opset has attributes instead
    assert ours.inputs[1] == theirs.max_input
    assert ours.outputs == (theirs.min_output, theirs.max_output)


@pytest.mark.parametrize("name", ONNX_S)
def test_attributes_are_onnx_s(name: str) -> None:
    onnx = pytest.importorskip("onnx")
    theirs, ours = _onnx_schema(name).attributes, all_schemas()[name].attributes
    assert set(theirs) - WITHOUT.get(name, set()) <= set(ours)
    older = {a for s in onnx.defs.get_all_schemas_with_history() if s.name == name for a in s.attributes}
    assert set(ours) - older - TENSOR_ATTRIBUTES == set()
    for attribute, spec in theirs.items():
        if attribute not in ours:
            continue
        assert ours[attribute].required == spec.required
        if spec.default_value.type:
            assert ours[attribute].default == _default(onnx.helper.get_attribute_value(spec.default_value))


def _default(value: Any) -> Any:
    """ONNX's default as a schema writes it: text decoded, lists as tuples, floats of 32 bits."""
    if isinstance(value, list):
        return tuple(_default(item) for item in value)
    return value.decode() if isinstance(value, bytes) else pytest.approx(value)


def test_unknown_operator_names_the_close_ones() -> None:
    with pytest.raises(GraphError) as caught:
        lookup("Relux")
    assert caught.value.code == "KG331"
    assert "'Relu'" in (caught.value.help or "")


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "path"),
    [
        ("Add", [TensorType("float32", (3,))], {}, ("inputs",)),
        ("Add", [None, TensorType("float32", (3,))], {}, ("inputs", 0)),
        ("Max", [TensorType("float32", (3,)), None, TensorType("float32", (3,))], {}, ("inputs", 1)),
        ("Sqrt", [TensorType("int32", (3,))], {}, ("inputs", 0)),
        ("Add", [TensorType("float32", (3,)), TensorType("float64", (3,))], {}, ("inputs", 1)),
        ("Add", [TensorType("float32", (3,)), TensorType("float32", (4,))], {}, ("inputs",)),
        ("Elu", [TensorType("float32", (3,))], {"alhpa": 1.0}, ("attributes", "alhpa")),
        ("Elu", [TensorType("float32", (3,))], {"alpha": "x"}, ("attributes", "alpha")),
        ("Gelu", [TensorType("float32", (3,))], {"approximate": "fast"}, ("attributes", "approximate")),
        ("Cast", [TensorType("float32", (3,))], {"to": "floaty"}, ("attributes", "to")),
        ("Cast", [TensorType("float32", (3,))], {"to": 8}, ("attributes", "to")),
        ("Cast", [TensorType("float32", (3,))], {}, ("attributes",)),
        ("Softmax", [TensorType("float32", (3,))], {"axis": 1}, ("attributes", "axis")),
        ("Reshape", [TensorType("float32", (6,)), TensorType("int64", (1,), (4,))], {}, ("inputs", 1)),
        ("Reshape", [TensorType("float32", (6,)), TensorType("int64", (1,))], {}, ("inputs", 1)),
        ("ReduceSum", [TensorType("float32", (6,)), TensorType("int64", (1,), (1,))], {}, ("inputs", 1)),
        ("MatMul", [TensorType("float32", (2, 3)), TensorType("float32", (4, 5))], {}, ("inputs", 1)),
    ],
)
def test_faults_carry_their_place(
    op: str, inputs: list[Any], attributes: dict[str, Any], path: tuple[Any, ...]
) -> None:
    with pytest.raises(InferenceError) as caught:
        infer(op, "n", inputs, attributes)
    assert caught.value.path == path
    assert caught.value.code in ("KG330", "KG332")


def test_trailing_absent_inputs_do_not_count() -> None:
    call = infer("Clip", "n", [TensorType("float32", (3,)), None, None], {})
    assert len(call.inputs) == 1
    assert call.outputs == (TensorType("float32", (3,)),)


def test_too_many_outputs_are_refused() -> None:
    with pytest.raises(InferenceError, match="takes 1 outputs, got 2"):
        infer("Relu", "n", [TensorType("float32", (3,))], {}, 2)


def test_cast_takes_names_and_numbers() -> None:
    x = TensorType("float32", (3,))
    assert infer("Cast", "n", [x], {"to": "float16"}).outputs == infer("Cast", "n", [x], {"to": 10}).outputs


@pytest.mark.parametrize("name", [n for n in NAMES if all_schemas()[n].family == "elementwise"])
def test_every_elementwise_operator_has_a_scalar_expression(name: str) -> None:
    schema = all_schemas()[name]
    required = {"Cast": {"to": "float32"}, "BitShift": {"direction": "LEFT"}}.get(name, {})
    for dtype in schema.dtypes:
        count = max(1, schema.inputs[0])
        rest = "int32" if name == "Where" else dtype
        types = [TensorType(dtype, (4,)), *[TensorType(rest, (4,))] * (count - 1)]
        text = scalar_expression(infer(name, "n", types, required))
        reads = count - len(schema.data.get("shape_only", ()))
        assert all(operand_name(index) in text for index in range(reads))
        assert "{" not in text


def test_attributes_become_literals() -> None:
    x = TensorType("float16", (4,))
    assert scalar_expression(infer("Elu", "n", [x], {"alpha": 0.5})) == "x < T(0) ? T(0.5) * expm1(x) : x"
    bounded = scalar_expression(infer("Clip", "n", [x], {"min": "-inf", "max": 6.0}))
    assert bounded == "kg_min(kg_max(x, T(-__int_as_float(0x7f800000))), T(6.0))"


@pytest.mark.parametrize("name", [n for n in NAMES if all_schemas()[n].inplace and all_schemas()[n].alias is None])
def test_takeover_keeps_the_dtype(name: str) -> None:
    # Output 0 may only take over an input whose elements are as wide as its own.
    for call in calls_of(name):
        if call.node != "mixed" and call.op == name:
            given = [position for position in all_schemas()[name].inplace if call.optional(position)]
            assert any(call.outputs[0].dtype == call.input(position).dtype for position in given)


def test_import_is_cheap() -> None:
    code = "import sys, kgrun.graphs.operators as o; o.all_schemas(); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_dtypes_of_schemas_exist() -> None:
    assert all(schema.dtypes <= set(DTYPES) for schema in all_schemas().values())
