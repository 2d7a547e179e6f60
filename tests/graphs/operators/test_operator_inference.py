"""Shapes and known values that inference gives, held against numpy on random cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import InferenceError, OpCall, TensorType
from kgrun.graphs.operators.known import converted

Array = np.ndarray[Any, Any]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
INDEX_SHAPES = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4)  # small: values end at 1024 elements


def known(array: Any, dtype: str = "int64") -> TensorType:
    """A tensor type with its value."""
    items = np.asarray(array, dtype)
    return TensorType(items.dtype.name, items.shape, tuple(items.reshape(-1).tolist()))


def counting(shape: tuple[int, ...]) -> Array:
    """0, 1, 2, … in `shape`."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def one(op: str, *inputs: TensorType | None, **attributes: Any) -> TensorType:
    """The first output of an operator."""
    return infer(op, "n", inputs, attributes).outputs[0]


def matches(type_: TensorType, array: Array) -> bool:
    """Whether shape and known value are the array's."""
    return type_.shape == array.shape and type_.value == tuple(array.reshape(-1).tolist())


@settings(max_examples=100, deadline=None)
@given(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=4))
def test_broadcasting_is_numpy_s(shapes: hnp.BroadcastableShapes) -> None:
    types = [known(counting(shape)) for shape in shapes.input_shapes]
    expected = np.add(counting(shapes.input_shapes[0]), counting(shapes.input_shapes[1]))
    assert matches(one("Add", *types[:2]), expected)
    assert one("Max", *types).shape == shapes.result_shape
    choice = TensorType("bool", shapes.input_shapes[0])
    assert one("Where", choice, *types[1:]).shape == shapes.result_shape


@settings(max_examples=100, deadline=None)
@given(SHAPES, SHAPES)
def test_shapes_that_do_not_broadcast_are_refused(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    try:
        expected: tuple[int, ...] | None = np.broadcast_shapes(first, second)
    except ValueError:
        expected = None
    if expected is None:
        with pytest.raises(InferenceError):
            one("Add", TensorType("float32", first), TensorType("float32", second))
    else:
        assert one("Add", TensorType("float32", first), TensorType("float32", second)).shape == expected


@settings(max_examples=100, deadline=None)
@given(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5), st.data())
def test_slices_are_numpy_s_but_for_starts_before_the_first_element(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    array = counting(shape)
    bound = st.integers(-7, 7)
    step = st.integers(-3, 3).filter(bool)
    parts = [data.draw(st.tuples(bound, bound, step)) for _ in shape]
    starts, ends, steps = (list(column) for column in zip(*parts, strict=True))
    axes = data.draw(st.permutations(range(len(shape))))
    picked = [slice(None)] * len(shape)
    for axis, (start, end, step) in zip(axes, parts, strict=True):
        # numpy takes nothing from before the first element backwards, ONNX clamps such a start to the first one.
        picked[axis] = slice(max(start, -shape[axis]) if step < 0 else start, end, step)
    found = one("Slice", known(array), known(starts), known(ends), known(list(axes)), known(steps))
    assert matches(found, array[tuple(picked)])


@pytest.mark.parametrize(
    ("start", "end", "step", "kept"),
    [
        (-4, -10, -1, [0]),
        (-4, -(2**63), -2, [0]),
        (-9, 0, -1, []),
        (-4, -4, -1, [0]),
        (10, -10, -2, [2, 0]),
        (9, 9, 1, []),
    ],
)
def test_a_slice_backwards_from_before_the_first_element_starts_there(
    start: int, end: int, step: int, kept: list[int]
) -> None:
    # The elements that ONNX Runtime keeps; its text says the same, numpy's slices do not.
    found = one("Slice", known(np.arange(3)), known([start]), known([end]), known([0]), known([step]))
    assert matches(found, np.array(kept, np.int64))
    empty = one("Slice", TensorType("float32", (0,)), known([start]), known([end]), known([0]), known([step]))
    assert empty.shape == (0,)


@settings(max_examples=100, deadline=None)
@given(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), st.data())
def test_moves_are_numpy_s(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = counting(shape)
    perm = data.draw(st.permutations(range(len(shape))))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    indices = data.draw(hnp.arrays(np.int64, INDEX_SHAPES, elements=st.integers(-shape[axis], shape[axis] - 1)))
    assert matches(one("Transpose", known(array), perm=list(perm)), array.transpose(perm))
    assert matches(one("Gather", known(array), known(indices), axis=axis), array.take(indices, axis))
    assert matches(one("Concat", known(array), known(array), axis=axis), np.concatenate([array, array], axis))
    assert matches(one("Unsqueeze", known(array), known([axis])), np.expand_dims(array, axis))
    target = (2, *shape)
    assert matches(one("Expand", known(array), known(target)), np.broadcast_to(array, target))


@settings(max_examples=100, deadline=None)
@given(hnp.array_shapes(min_dims=0, max_dims=3, max_side=4), st.data())
def test_reductions_are_numpy_s(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = counting(shape) - 3
    axes = data.draw(st.lists(st.integers(0, max(len(shape) - 1, 0)), unique=True)) if shape else []
    keep = data.draw(st.booleans())
    over = tuple(axes) or None
    for op, function in (("ReduceSum", np.sum), ("ReduceMax", np.max), ("ReduceMin", np.min), ("ReduceProd", np.prod)):
        found = one(op, known(array), known(axes), keepdims=int(keep))
        assert matches(found, np.asarray(function(array, axis=over, keepdims=keep)))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["int8", "uint8", "int32", "int64", "uint64"]), st.data())
def test_known_integers_wrap_and_truncate(dtype: str, data: st.DataObject) -> None:
    limits = np.iinfo(dtype)
    x, y = (data.draw(st.integers(int(limits.min), int(limits.max))) for _ in range(2))
    a, b = (np.array([item], dtype) for item in (x, y))
    for op, function in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)):
        assert matches(one(op, known(a, dtype), known(b, dtype)), function(a, b))
    if y:
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert one("Div", known(a, dtype), known(b, dtype)).value == (converted(quotient, dtype),)
        assert matches(one("Mod", known(a, dtype), known(b, dtype)), np.mod(a, b))


@settings(max_examples=100, deadline=None)
@given(st.floats(-1e6, 1e6, width=32), st.sampled_from(["float16", "float32", "int32", "int64", "bool"]))
def test_known_casts_are_numpy_s(x: float, to: str) -> None:
    with np.errstate(over="ignore"):
        assert matches(one("Cast", known([x], "float32"), to=to), np.array([x], np.float32).astype(to))


@pytest.mark.parametrize("divisor", [0, 0.0])
def test_division_by_zero_leaves_the_value_unknown(divisor: float) -> None:
    dtype = "int64" if isinstance(divisor, int) else "float32"
    assert one("Div", known([1], dtype), known([divisor], dtype)).value is None


def test_large_values_are_not_followed() -> None:
    assert one("ConstantOfShape", known([1025])) == TensorType("float32", (1025,))
    assert one("Add", known(counting((600, 2))), known(1)).value is None


def test_shape_arithmetic_is_followed_to_its_end() -> None:
    # What exporters write to flatten all but the first axis: Shape, Gather, Unsqueeze, Concat, Reshape.
    x = TensorType("float32", (5, 3, 4))
    first = one("Gather", one("Shape", x), known(0), axis=0)
    target = one("Concat", one("Unsqueeze", first, known([0])), known([-1]), axis=0)
    assert target.value == (5, -1)
    assert one("Reshape", x, target) == TensorType("float32", (5, 12))


@pytest.mark.parametrize(
    ("wanted", "allowzero", "shape"),
    [((0, -1), 0, (2, 12)), ((4, 0, 2), 0, (4, 3, 2)), ((-1,), 0, (24,)), ((2, 3, 4, 1), 1, (2, 3, 4, 1))],
)
def test_reshape_fills_in(wanted: tuple[int, ...], allowzero: int, shape: tuple[int, ...]) -> None:
    assert one("Reshape", TensorType("int8", (2, 3, 4)), known(wanted), allowzero=allowzero).shape == shape


@pytest.mark.parametrize("wanted", [(-1, -1), (5, -1), (7,), (2, 3, 4, 0), (-2, 12)])
def test_reshape_refuses(wanted: tuple[int, ...]) -> None:
    with pytest.raises(InferenceError):
        one("Reshape", TensorType("int8", (2, 3, 4)), known(wanted))


def test_a_result_has_at_most_32_axes() -> None:
    x = TensorType("float32", (1,) * 31)
    assert len(one("Unsqueeze", x, known([0])).shape) == 32
    with pytest.raises(InferenceError, match="its result has 33 axes; a tensor has at most 32"):
        one("Unsqueeze", x, known([0, 1]))


def test_older_attribute_forms() -> None:
    x = TensorType("float32", (1, 4, 1))
    assert one("Squeeze", x, axes=[0]).shape == (4, 1)
    assert one("Unsqueeze", x, axes=[0, 4]).shape == (1, 1, 4, 1, 1)
    assert one("ReduceSum", x, axes=[1], keepdims=0).shape == (1, 1)
    assert one("Slice", x, starts=[1], ends=[3], axes=[1]).shape == (1, 2, 1)
    assert one("Pad", x, pads=[0, 1, 0, 0, 2, 0]).shape == (1, 7, 1)
    assert [t.shape for t in infer("Split", "n", [x], {"axis": 1, "split": [1, 3]}, 2).outputs] == [
        (1, 1, 1),
        (1, 3, 1),
    ]


def test_split_gives_the_last_part_the_rest() -> None:
    call: OpCall = infer("Split", "n", [TensorType("float32", (7,))], {"num_outputs": 3}, 3)
    assert [t.shape for t in call.outputs] == [(3,), (3,), (1,)]


def test_flops() -> None:
    from kgrun.graphs.operators import lookup

    gemm = infer("MatMul", "n", [TensorType("float32", (8, 2, 3)), TensorType("float32", (3, 5))], {})
    conv = infer("Conv", "n", [TensorType("float32", (1, 4, 8, 8)), TensorType("float32", (6, 2, 3, 3))], {"group": 2})
    assert lookup("MatMul").flops is not None
    assert lookup("MatMul").flops(gemm) == 2 * 8 * 2 * 3 * 5  # type: ignore[misc]
    assert lookup("Conv").flops(conv) == 2 * (6 * 6 * 6) * (2 * 3 * 3)  # type: ignore[misc]


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=0, max_dims=3, max_side=3), elements=st.integers(0, 2)), st.data()
)
def test_known_selections_are_numpy_s(array: Array, data: st.DataObject) -> None:
    places = np.stack(np.nonzero(array)) if array.ndim else np.empty((0, int(array != 0)))
    assert matches(one("NonZero", known(array)), places)
    axis = data.draw(st.integers(-array.ndim, array.ndim - 1)) if array.ndim else None
    along = {} if axis is None else {"axis": axis}
    size = array.size if axis is None else array.shape[axis]
    keep = data.draw(st.lists(st.booleans(), min_size=1, max_size=size))
    found = one("Compress", known(array), known(keep, "bool"), **along)
    assert matches(found, np.compress(keep, array, axis))
    unique = infer("Unique", "n", [known(array)], along, 4).outputs
    results = np.unique(array, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    assert all(matches(a, np.asarray(b).reshape(a.shape)) for a, b in zip(unique, results, strict=True))


def test_unknown_selections_have_bounds() -> None:
    x = TensorType("float32", (4, 5))
    for op, more, shape in (
        ("NonZero", [], (2, 20)),
        ("Unique", [], (20,)),
        ("Compress", [TensorType("bool", (3,))], (3,)),
    ):
        call = infer(op, "n", [x, *more], {})
        assert not call.exact
        assert call.outputs[0].shape == shape
    boxes, scores = TensorType("float32", (1, 6, 4)), TensorType("float32", (1, 2, 6))
    assert infer("NonMaxSuppression", "n", [boxes, scores, known([2])], {}).outputs[0].shape == (4, 3)
    assert infer("NonMaxSuppression", "n", [boxes, scores], {}).exact


@settings(max_examples=60, deadline=None)
@given(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), st.data())
def test_known_gathers_are_numpy_s(shape: tuple[int, ...], data: st.DataObject) -> None:
    array, axis = counting(shape), data.draw(st.integers(0, len(shape) - 1))
    element = st.integers(-shape[axis], shape[axis] - 1)
    indices = data.draw(hnp.arrays(np.int64, shape, elements=element))
    assert matches(
        one("GatherElements", known(array), known(indices), axis=axis), np.take_along_axis(array, indices, axis)
    )
    depth = data.draw(st.integers(1, len(shape)))
    rows = np.stack([data.draw(hnp.arrays(np.int64, (3,), elements=st.integers(-n, n - 1))) for n in shape[:depth]], -1)
    assert matches(one("GatherND", known(array), known(rows)), array[tuple(rows.T)])
