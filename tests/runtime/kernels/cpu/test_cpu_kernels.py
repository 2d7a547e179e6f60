"""CPU kernels against plain references, and the promise that where memory lies changes no bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.kernels.base import cpu_kernel
from tests.runtime.kernels.cpu.calls import Array, call_of, dtype_of, run, typed


def placed(array: Array, offset: int) -> Array:
    """A copy that starts `offset` elements behind a 64-byte boundary."""
    room = np.zeros(array.nbytes + 64 + offset * array.itemsize, np.uint8)
    start = -room.ctypes.data % 64 + offset * array.itemsize
    result = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def operands(op: str, dtype: str, size: int = 40_000) -> list[Array]:
    """Two or so operands of an elementwise operator, large enough to be walked in blocks."""
    rng = np.random.default_rng(1)
    count = max(1, all_schemas()[op].inputs[0])
    if all_schemas()[op].inputs[1] > 2:
        count = max(count, 2)
    if op == "Clip":
        return [rng.normal(0, 2, size).astype(dtype_of(dtype)), np.array(-1).astype(dtype_of(dtype))]
    arrays = [(rng.normal(0, 2, size) * (1 if dtype.startswith("float") else 20)) for _ in range(count)]
    with np.errstate(all="ignore"):
        return [a.astype(dtype_of(dtype if op != "Where" or i == 0 else "float32")) for i, a in enumerate(arrays)]


def bits(array: Array) -> bytes:
    """The bytes of an array."""
    return np.ascontiguousarray(array).tobytes()


REQUIRED: dict[str, dict[str, Any]] = {"Cast": {"to": "float32"}, "BitShift": {"direction": "LEFT"}}
ELEMENTWISE = sorted(name for name, schema in all_schemas().items() if schema.family == "elementwise")


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_elementwise_in_place_and_anywhere_gives_the_same_bits(op: str) -> None:
    schema = all_schemas()[op]
    for dtype in sorted(schema.dtypes & {"float32", "float64", "bfloat16", "int32", "int8", "bool"}):
        arrays = operands(op, dtype)
        call = call_of(op, list(arrays), **REQUIRED.get(op, {}))
        kernel = cpu_kernel(op)(call)
        out = np.zeros(call.outputs[0].shape, dtype_of(call.outputs[0].dtype))
        kernel(arrays, [out])
        for offset in (1, 3):
            moved, target = [placed(a, offset) for a in arrays], placed(np.zeros_like(out), offset + 1)
            kernel(moved, [target])
            assert bits(target) == bits(out)
        for index in schema.inplace:
            if index < len(arrays) and arrays[index].dtype == out.dtype and arrays[index].shape == out.shape:
                moved = [placed(a, 0) for a in arrays]
                kernel(moved, [moved[index]])
                assert bits(moved[index]) == bits(out)


EPSILON = {"float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
FLOATING = sorted(
    name
    for name, schema in all_schemas().items()
    if schema.family in ("elementwise", "reduction", "nn", "linear", "normalization") and "bfloat16" in schema.dtypes
)


def float_case(op: str) -> tuple[list[Array], dict[str, Any]]:
    """Small float64 operands of any floating-point operator, away from its poles and jumps."""
    rng = np.random.default_rng(8)
    x = rng.uniform(0.1, 0.9, (2, 4, 6, 6)) + (1 if op == "Acosh" else 0)
    if op in ("Conv", "MatMul", "Gemm"):
        shapes: dict[str, tuple[tuple[int, ...], ...]] = {"Conv": ((3, 4, 3, 3), (3,)), "Gemm": ((4, 7), (7,))}
        left = x[0, :, 0, :4] if op == "Gemm" else x
        return [left, *(rng.uniform(-1, 1, shape) for shape in shapes.get(op, ((6, 5),)))], {}
    if op in ("BatchNormalization", "LayerNormalization"):
        size, count = (4, 4) if op == "BatchNormalization" else (6, 1)
        return [x, *(rng.uniform(0.5, 1.5, size) for _ in range(count))], {}
    if op in ("InstanceNormalization", "GroupNormalization"):
        more = {"num_groups": 2} if op == "GroupNormalization" else {}
        return [x, *(rng.uniform(0.5, 1.5, 4) for _ in range(2))], more
    attributes: dict[str, Any] = {"Cast": {"to": "float32"}, "Mod": {"fmod": 1}, "LRN": {"size": 3}}.get(op, {})
    if op in ("MaxPool", "AveragePool", "LpPool"):
        attributes = {"kernel_shape": [2, 3]}
    count = max(all_schemas()[op].inputs[0], 1)
    return [x, *(rng.uniform(1, 2, (6,)) for _ in range(count - 1))], attributes


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("op", FLOATING)
def test_every_float_agrees_with_float64(op: str, dtype: str) -> None:
    arrays, attributes = float_case(op)
    narrow = [array.astype(dtype_of(dtype)) for array in arrays]
    expected = run(op, *(array.astype(np.float64) for array in narrow), **attributes)[0].astype(np.float64)
    found = run(op, *narrow, **attributes)[0]
    tolerance = EPSILON[dtype] if dtype != "float32" else 16 * EPSILON[dtype]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=2 * tolerance, atol=2 * tolerance)


ROWS = ("Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "BatchNormalization")
ROWS += ("InstanceNormalization", "RMSNormalization")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("op", ROWS)
def test_row_wise_in_place_gives_the_same_bits(op: str, dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(8, 33)).astype(dtype_of(dtype))
    rest = {"LayerNormalization": 1, "BatchNormalization": 4, "InstanceNormalization": 2, "RMSNormalization": 1}.get(
        op, 0
    )
    arrays = [x, *(np.abs(rng.normal(size=33)).astype(dtype_of(dtype)) for _ in range(rest))]
    call = call_of(op, list(arrays))
    out = np.zeros_like(x)
    cpu_kernel(op)(call)(arrays, [out])
    assert 0 in all_schemas()[op].inplace
    cpu_kernel(op)(call)(arrays, [x])
    assert bits(x) == bits(out)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("MatMul", [(64, 48), (48, 40)], {}),
        ("MatMul", [(3, 17, 33), (33, 5)], {}),
        ("MatMul", [(4, 1, 64), (4, 64, 7)], {}),
        ("MatMul", [(64,), (64, 9)], {}),
        ("Gemm", [(31, 20), (13, 20), (13,)], {"transB": 1}),
        ("Gemm", [(20, 31), (20, 13)], {"transA": 1, "alpha": 0.5}),
        ("Conv", [(2, 6, 15, 13), (9, 6, 3, 3), (9,)], {"pads": [1, 1, 1, 1]}),
        ("Conv", [(1, 8, 9, 9), (8, 1, 3, 3)], {"group": 8}),
        ("Conv", [(1, 8, 9, 9), (5, 8, 1, 1)], {}),
        ("ReduceSum", [(37, 41)], {"axes": [0]}),
        ("ReduceMean", [(37, 41)], {"axes": [1]}),
        ("Softmax", [(9, 65)], {}),
        ("AveragePool", [(1, 3, 17, 17)], {"kernel_shape": [3, 3]}),
    ],
)
def test_placement_changes_no_bit(op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    call = call_of(op, list(arrays), **attributes)
    kernel = cpu_kernel(op)(call)
    results = set()
    for offset in (0, 1, 2, 5, 8):
        out = placed(np.zeros(call.outputs[0].shape, np.float32), offset)
        kernel([placed(array, 3 * offset) for array in arrays], [out])
        results.add(bits(out))
    assert len(results) == 1


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap", "constant"])
@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(2, 4), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_pad_is_numpy_s(mode: Any, rows: int, columns: int, pads: list[int]) -> None:
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    (found,) = run("Pad", x, np.array(pads), mode=mode)
    np.testing.assert_array_equal(found, np.pad(x, [(pads[0], pads[2]), (pads[1], pads[3])], mode=mode))


@pytest.mark.parametrize(("mode", "name"), [("reflect", "reflect"), ("edge", "edge"), ("wrap", "wrap")])
def test_pad_repeats_what_cropping_leaves(mode: str, name: Any) -> None:
    x = np.arange(35).reshape(5, 7)
    (found,) = run("Pad", x, np.array([-2, 3, 2, -3]), mode=mode)
    np.testing.assert_array_equal(found, np.pad(x[2:, :4], ((0, 2), (3, 0)), mode=name))


def test_pad_crops() -> None:
    x = np.arange(20, dtype=np.int8).reshape(4, 5)
    (found,) = run("Pad", x, np.array([-1, 2, -1, -3]), np.array([7], np.int8))
    np.testing.assert_array_equal(found, np.pad(x[1:3, :2], [(0, 0), (2, 0)], constant_values=7))


def test_gather_outside_names_node_and_index() -> None:
    x, indices = np.arange(4, dtype=np.float32), np.array([0, -4, 4])
    with pytest.raises(GraphError, match=r"node: Gather's index 4 is outside \[-4, 3\]"):
        run("Gather", x, indices)


@pytest.mark.parametrize("op", ["GatherElements", "ScatterElements", "GatherND", "ScatterND"])
def test_indices_outside_name_node_and_index(op: str) -> None:
    x, indices = np.arange(4, dtype=np.float32), np.array([-5, 0])
    indices, updates = (indices[:, None] if op.endswith("ND") else indices), x[:2]
    with pytest.raises(GraphError, match=rf"node: {op}'s index -5 is outside \[-4, 3\]"):
        run_unknown(op, *[x, indices, updates][: all_schemas()[op].inputs[0]])


def run_unknown(op: str, *arrays: Array) -> None:
    """Run with nothing known while binding."""
    call = infer(op, "node", [typed(a) for a in arrays], {})
    cpu_kernel(op)(call)(arrays, [np.zeros(t.shape, dtype_of(t.dtype)) for t in call.outputs])


def test_scattered_sums_of_halves_are_rounded_once() -> None:
    x, places = np.zeros(1, np.float16), np.zeros(4096, np.int64)
    found = run("ScatterElements", x, places, np.full(4096, 0.5, np.float16), reduction="add")[0]
    assert found.tolist() == [2048.0]  # adding halves one by one ends at 1024


def test_integer_arithmetic_is_c_s() -> None:
    x, y = np.array([7, -7, 7, -7, -128], np.int8), np.array([2, 2, -2, -2, 3], np.int8)
    np.testing.assert_array_equal(run("Div", x, y)[0], [3, -3, -3, 3, -42])
    np.testing.assert_array_equal(run("Mod", x, y)[0], [1, 1, -1, -1, 1])
    np.testing.assert_array_equal(run("Mod", x, y, fmod=1)[0], [1, -1, 1, -1, -2])
    np.testing.assert_array_equal(run("Mul", x, y)[0], (x.astype(int) * y).astype(np.int8))
    a, b = np.array([2, -1, -1, 3, 1], np.int32), np.array([-1, -3, -2, 3, -5], np.int64)
    np.testing.assert_array_equal(run("Pow", a, b)[0], [0, -1, 1, 27, 1])


def test_powers_wrap_whatever_the_exponent() -> None:
    x = np.array([3, 2, -1, -3, 3, 1], np.int32)
    y = np.array([2**32 + 1, 2**40, 2**63 + 1, 41, 2**64 - 1, 2**63], np.uint64)
    wrapped = [pow(a, b, 2**32) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert run("Pow", x, y)[0].tolist() == [n - 2**32 if n >= 2**31 else n for n in wrapped]
    least = np.array([-(2**63)] * 4)
    assert run("Pow", np.array([2, 1, -1, 0]), least)[0].tolist() == [0, 1, 1, 0]


def test_extremes_keep_nan() -> None:
    x, y = np.array([1, np.nan, 3], np.float32), np.array([np.nan, 2, 2], np.float32)
    assert np.isnan(run("Max", x, y)[0]).tolist() == [True, True, False]
    assert np.isnan(run("Min", x, y)[0]).tolist() == [True, True, False]
    assert np.isnan(run("Relu", x)[0]).tolist() == [False, True, False]
    assert np.isnan(run("Clip", x, np.float32(0))[0]).tolist() == [False, True, False]


def test_clip_with_crossed_bounds_gives_the_upper_one() -> None:
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    np.testing.assert_array_equal(run("Clip", x, np.float32(2), np.float32(1))[0], np.ones(7))
    np.testing.assert_array_equal(run("Clip", x, None, np.float32(1))[0], np.minimum(x, 1))


def test_softmax_of_half_is_accumulated_in_float32() -> None:
    x = np.zeros((1, 4096), np.float16)
    np.testing.assert_array_equal(run("Softmax", x)[0], np.full((1, 4096), 1 / 4096, np.float16))
    rows = np.ones((1, 4096), np.float16)
    np.testing.assert_array_equal(run("ReduceSum", rows, np.array([1]))[0], np.array([[4096]], np.float16))


def test_softmax_survives_large_and_masked_rows() -> None:
    x = np.array([[1e4, 1e4, -1e4], [-np.inf, 0, -np.inf]], np.float32)
    np.testing.assert_allclose(run("Softmax", x)[0], [[0.5, 0.5, 0], [0, 1, 0]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_erf(dtype: str) -> None:
    x = np.concatenate([np.linspace(-6, 6, 20_001), [np.inf, -np.inf, 1e-30, 0.0]]).astype(dtype)
    expected = np.array([math.erf(float(item)) for item in x])
    np.testing.assert_allclose(run("Erf", x)[0], expected, rtol=6e-7 if dtype == "float32" else 5e-16)
    assert np.isnan(run("Erf", np.array([np.nan], dtype))[0]).all()


def test_float8_casts_saturate_when_asked() -> None:
    x = np.array([1.0, 1e6, -1e6, np.inf, np.nan], np.float32)
    clipped = run("Cast", x, to="float8_e4m3fn")[0].astype(np.float32)
    np.testing.assert_array_equal(clipped, [1, 448, -448, 448, np.nan])
    loose = run("Cast", x, to="float8_e5m2", saturate=0)[0].astype(np.float32)
    np.testing.assert_array_equal(loose, [1, np.inf, -np.inf, np.inf, np.nan])


def test_layer_normalization_gives_its_statistics() -> None:
    x = np.random.default_rng(6).normal(3, 2, (4, 50)).astype(np.float32)
    one = np.ones(50, np.float32)
    y, mean, inverse = run("LayerNormalization", x, one, count=3)
    np.testing.assert_allclose(mean, x.mean(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(y, (x - mean) * inverse, rtol=1e-4, atol=1e-5)


def test_dropout_is_identity_with_a_full_mask() -> None:
    x = np.arange(6, dtype=np.float32)
    y, mask = run("Dropout", x, count=2)
    np.testing.assert_array_equal(y, x)
    assert mask.all()


def test_empty_tensors_pass_through() -> None:
    nothing = np.zeros((0, 3), np.float32)
    assert run("Add", nothing, np.ones(3, np.float32))[0].shape == (0, 3)
    assert run("Softmax", nothing)[0].shape == (0, 3)
    assert run("MatMul", nothing, np.ones((3, 2), np.float32))[0].shape == (0, 2)
    np.testing.assert_array_equal(run("ReduceSum", nothing, np.array([0]))[0], np.zeros((1, 3)))
    np.testing.assert_array_equal(run("ReduceMax", nothing, np.array([0]))[0], np.full((1, 3), -np.inf))
    assert run("Conv", np.zeros((0, 2, 5), np.float32), np.ones((3, 2, 3), np.float32))[0].shape == (0, 3, 3)


# Collectives move data between ranks: tests/runtime/collectives holds them.
ALONE = sorted(name for name, schema in all_schemas().items() if schema.family != "collectives")


def test_every_operator_has_a_cpu_kernel() -> None:
    assert len(ALONE) > 180
    assert all(callable(cpu_kernel(name)) for name in ALONE)


@pytest.mark.parametrize("name", ALONE)
def test_operators_take_tensors_of_rank_zero(name: str) -> None:
    schema = all_schemas()[name]
    for dtype in ("float32", "float16", "float64", "int32", "bool"):
        for count in range(schema.inputs[0], min(schema.inputs[1], 3) + 1):
            try:
                call = infer(name, "n", [TensorType(dtype, ())] * count, {}, 1)
            except GraphError:
                continue  # not of this dtype, or not of this rank
            outputs = [np.zeros(o.shape, numpy_dtype(o.dtype)) for o in call.outputs]
            with np.errstate(all="ignore"):
                cpu_kernel(name)(call)([np.ones((), numpy_dtype(dtype))] * count, outputs)
            assert all(o.shape == t.shape for o, t in zip(outputs, call.outputs, strict=True))
