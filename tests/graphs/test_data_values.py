"""Inline values and init rules: types, shapes, ranges, and the same bytes everywhere."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from kgrun.graphs.data import constant_value, initial_array, numpy_dtype, string_array, value_array
from kgrun.graphs.data_values import FLOAT_MAX, MAX_SPREAD
from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.errors import GraphError, Place, UsageError
from kgrun.graphs.schema.tensors import Init, TensorSpec

INIT: TypeAdapter[Any] = TypeAdapter(Init)


def constant(value: Any, **keys: Any) -> tuple[Any, ...]:
    return constant_value(TensorSpec.model_validate({"role": "constant", "value": value, **keys}), {"n": 4, "m": 3})


def made(init: dict[str, Any], dtype: str, shape: tuple[int, ...], name: str = "x", seed: int = 0) -> Any:
    return initial_array(INIT.validate_python(init), dtype, shape, name, seed)


@pytest.mark.parametrize(
    ("value", "keys", "wanted"),
    [
        (3, {}, ("int64", (), (3,))),
        ([1, 2], {}, ("int64", (2,), (1, 2))),
        ([], {}, ("int64", (0,), ())),
        ([[], []], {}, ("int64", (2, 0), ())),
        ([1, 2.5], {}, ("float32", (2,), (1.0, 2.5))),
        ([[True], [False]], {}, ("bool", (2, 1), (True, False))),
        (["n", "n*m - 1"], {}, ("int64", (2,), (4, 11))),
        ([3.4028235e38], {}, ("float32", (1,), (3.4028235e38,))),
        ([1, "inf", "-inf"], {}, ("float32", (3,), (1.0, math.inf, -math.inf))),
        ([1, 0], {"dtype": "bool"}, ("bool", (2,), (True, False))),
        (["n"], {"dtype": "float16"}, ("float16", (1,), (4.0,))),
        (7, {"dtype": "uint8", "shape": ["n", 2]}, ("uint8", (4, 2), (7,) * 8)),
        ([[1, 2]], {"shape": [1, "n // 2"]}, ("int64", (1, 2), (1, 2))),
        (5, {"shape": [0, "n"]}, ("int64", (0, 4), ())),
        (0, {"shape": [MAX_SPREAD, 2]}, ("int64", (MAX_SPREAD, 2), None)),
    ],
)
def test_constant_values(value: Any, keys: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    found = constant(value, **keys)
    assert found == wanted
    assert found[2] is None or [type(e) for e in found[2]] == [type(e) for e in wanted[2]]


def test_strings_are_utf8_bytes() -> None:
    spec = TensorSpec.model_validate({"role": "constant", "string": "hé"})
    assert constant_value(spec, {}) == ("uint8", (3,), (0x68, 0xC3, 0xA9))
    assert string_array("hé").tolist() == [0x68, 0xC3, 0xA9]


@pytest.mark.parametrize(
    ("value", "keys", "part"),
    [
        ([[1, 2], [3]], {}, "ragged"),
        ([1, [2]], {}, "ragged"),
        ([[1], 2], {}, "ragged"),
        ([[[1]], [2]], {}, "ragged"),
        ([True, 1], {}, "booleans and numbers"),
        ([1, 2], {"shape": [3]}, "shape [2], the tensor [3]"),
        ([1], {"shape": [3]}, "shape [1], the tensor [3]"),
        (1, {"shape": ["n - 5"]}, "negative"),
        (256, {"dtype": "uint8"}, "256 is outside uint8: [0, 255]"),
        (-1, {"dtype": "uint64"}, "-1 is outside uint64"),
        (2**63, {}, "outside int64"),
        (1.0, {"dtype": "int32"}, "1.0 is no int32 value"),
        (True, {"dtype": "int32"}, "True is no int32 value"),
        (2, {"dtype": "bool"}, "2 is no bool value"),
        (False, {"dtype": "float32"}, "False is no float32 value"),
        (1e39, {"dtype": "float32"}, "outside float32"),
        (10**400, {"dtype": "float64"}, "outside float64"),
        (65505, {"dtype": "float16"}, "outside float16"),
        (449, {"dtype": "float8_e4m3fn"}, "outside float8_e4m3fn"),
        ("inf", {"dtype": "float8_e4m3fn"}, "no infinities"),
    ],
)
def test_values_that_do_not_fit(value: Any, keys: dict[str, Any], part: str) -> None:
    with pytest.raises(GraphError) as caught:
        constant(value, **keys)
    assert caught.value.code == "KG377"
    assert part in caught.value.message


def test_values_take_the_place_that_is_given() -> None:
    where = Place("g.yaml", ("tensors", "x", "value"))
    with pytest.raises(GraphError) as caught:
        value_array([1, [2]], "int8", (2,), {}, where)
    assert caught.value.where == where
    with pytest.raises(UsageError) as unbound:
        value_array("q", "int8", (), {}, where)
    assert unbound.value.code == "KG220"


@pytest.mark.parametrize("dtype", DTYPES)
def test_value_arrays_have_every_dtype(dtype: str) -> None:
    array = value_array([[0, 1], [1, 0]], dtype, (2, 2), {})
    assert array.dtype == numpy_dtype(dtype)
    assert array.astype(np.float64).tolist() == [[0, 1], [1, 0]]
    assert value_array(1, dtype, (2, 3), {}).astype(np.int64).tolist() == [[1, 1, 1]] * 2


def test_value_arrays_keep_wide_integers_and_special_floats() -> None:
    assert value_array([2**64 - 1], "uint64", None, {}).tolist() == [2**64 - 1]
    assert value_array([-(2**63)], "int64", None, {}).tolist() == [-(2**63)]
    found = value_array(["nan", "inf", "-inf", 0.1], "bfloat16", (4,), {})
    assert found.view(np.uint16).tolist() == [0x7FC0, 0x7F80, 0xFF80, 0x3DCD]


@pytest.mark.parametrize("dtype", sorted(FLOAT_MAX))
def test_the_largest_floats_fit_exactly(dtype: str) -> None:
    top = FLOAT_MAX[dtype]
    array = value_array([top, -top], dtype, (2,), {})
    assert array.astype(np.float64).tolist() == [top, -top]


# sha256 of the bytes: a change here changes what every seeded graph computes.
@pytest.mark.parametrize(
    ("init", "dtype", "digest"),
    [
        ({"uniform": [-1, 1], "seed": 3}, "float32", "73141defed12f0d8"),
        ({"normal": [0, 1], "seed": 3}, "float32", "a2c553a7b976c987"),
        ({"integers": [-5, 100]}, "int32", "23d96bb85d7efc78"),
        ({"uniform": [0, 1]}, "bfloat16", "9bee68a0a03b590b"),
    ],
)
def test_seeded_data_are_the_same_everywhere(init: dict[str, Any], dtype: str, digest: str) -> None:
    found = hashlib.sha256(made(init, dtype, (3, 1000)).tobytes()).hexdigest()
    assert found[:16] == digest


def test_seeds_names_and_order() -> None:
    rule = {"uniform": [0, 1]}
    base = made(rule, "float32", (100,))
    assert np.array_equal(base, made(rule, "float32", (100,)))
    assert not np.array_equal(base, made(rule, "float32", (100,), name="y"))
    assert not np.array_equal(base, made(rule, "float32", (100,), seed=1))
    seeded = {**rule, "seed": 7}
    assert np.array_equal(made(seeded, "float32", (100,), name="x"), made(seeded, "float32", (100,), name="y"))
    assert not np.array_equal(made(seeded, "float32", (100,)), made(seeded, "float32", (100,), seed=1))
    # Narrow types see the same numbers, rounded; a longer tensor starts with a shorter one's numbers.
    assert np.array_equal(made(rule, "float64", (100,)).astype(np.float16), made(rule, "float16", (100,)))
    assert np.array_equal(made(rule, "float32", (600_000,))[:100], base)


@pytest.mark.parametrize("dtype", sorted(FLOAT_MAX))
def test_uniform_stays_below_its_upper_bound(dtype: str) -> None:
    array = made({"uniform": [-1, 1]}, dtype, (20_000,)).astype(np.float64)
    assert array.min() >= -1
    assert array.max() < 1
    assert abs(array.mean()) < 0.05
    assert made({"uniform": [2, 2]}, dtype, (3,)).astype(np.float64).tolist() == [2, 2, 2]


@pytest.mark.parametrize("dtype", sorted(FLOAT_MAX))
def test_normal_numbers_are_finite(dtype: str) -> None:
    array = made({"normal": [1, FLOAT_MAX[dtype] / 2]}, dtype, (20_000,)).astype(np.float64)
    assert np.isfinite(array).all()
    narrow = made({"normal": [3, 0.5]}, dtype, (20_000,)).astype(np.float64)
    assert abs(narrow.mean() - 3) < 0.05
    assert abs(narrow.std() - 0.5) < 0.05


@pytest.mark.parametrize("dtype", [d for d in DTYPES if DTYPES[d].limits])
def test_integers_fill_their_whole_range(dtype: str) -> None:
    low, high = DTYPES[dtype].limits or (0, 0)
    array = made({"integers": [low, min(high + 1, 2**64 - 1)]}, dtype, (50_000,))
    assert array.dtype == numpy_dtype(dtype)
    span = (high - low) / 20 if dtype != "bool" else 0
    assert int(array.min()) <= low + span
    assert int(array.max()) >= high - span


@pytest.mark.parametrize(
    ("init", "dtype", "wanted"),
    [
        ({"fill": 3}, "int8", [3, 3, 3]),
        ({"fill": True}, "bool", [True, True, True]),
        ({"fill": -0.5}, "float16", [-0.5] * 3),
        ({"fill": "inf"}, "float32", [math.inf] * 3),
        ({"arange": [5, -2]}, "int16", [5, 3, 1]),
        ({"arange": [250, 2]}, "uint8", [250, 252, 254]),
        ({"arange": [2**64 - 3, 1]}, "uint64", [2**64 - 3, 2**64 - 2, 2**64 - 1]),
        ({"arange": [-(2**63), 2**62]}, "int64", [-(2**63), -(2**62), 0]),
        ({"arange": [0.5, 0.25]}, "float32", [0.5, 0.75, 1.0]),
        ({"integers": [4, 5]}, "float8_e5m2", [4, 4, 4]),
    ],
)
def test_rules_without_chance(init: dict[str, Any], dtype: str, wanted: list[Any]) -> None:
    array = made(init, dtype, (3,))
    assert array.dtype == numpy_dtype(dtype)
    assert array.tolist() == wanted
    assert made(init, dtype, ()).shape == ()
    assert made(init, dtype, (0, 4)).shape == (0, 4)


@pytest.mark.parametrize(
    ("init", "dtype", "part"),
    [
        ({"uniform": [0, 1]}, "int32", "uniform makes floats"),
        ({"normal": [0, 1]}, "bool", "normal makes floats"),
        ({"uniform": [1, 0]}, "float32", "swapped"),
        ({"uniform": [0, 1e39]}, "float32", "outside float32"),
        ({"uniform": [0, 500]}, "float8_e4m3fn", "outside float8_e4m3fn"),
        ({"normal": [0, -1]}, "float32", "negative standard deviation"),
        ({"integers": [3, 3]}, "int32", "empty"),
        ({"integers": [0, 300]}, "uint8", "leaves uint8"),
        ({"integers": [-1, 2]}, "bool", "leaves bool"),
        ({"integers": [0, 100_000]}, "float16", "outside float16"),
        ({"fill": 1.5}, "int32", "1.5 is no int32 value"),
        ({"fill": "nan"}, "int32", "no int32 value"),
        ({"fill": 300}, "uint8", "outside uint8"),
        ({"arange": [0, 0.5]}, "int32", "arange makes floats"),
        ({"arange": [250, 3]}, "uint8", "from 250 to 256"),
        ({"arange": [0, -1]}, "uint8", "from 0 to -2"),
    ],
)
def test_rules_that_do_not_fit(init: dict[str, Any], dtype: str, part: str) -> None:
    with pytest.raises(GraphError) as caught:
        made(init, dtype, (3,))
    assert caught.value.code in ("KG377", "KG378")
    assert part in caught.value.message
