"""Calls of quantised operators for the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType

Ints = tuple[int, ...]


def quantization(op: str) -> Iterator[OpCall]:
    """Calls of one quantised operator."""
    yield from _CALLS[op](op)


def _linear(op: str) -> Iterator[OpCall]:
    forward = op == "QuantizeLinear"

    def call(wide: str, narrow: str, shape: Ints, scale: Ints, zero: bool = True, **attributes: Any) -> OpCall:
        kinds = [
            TensorType(wide if forward else narrow, shape),
            TensorType("float32" if wide == "int32" else wide, scale),
        ]
        kinds += [TensorType(narrow, scale)] if zero else []
        return infer(op, f"{op}_{wide}_{narrow}", kinds, attributes)

    for narrow in ("int8", "uint8", "int16", "uint16", "float8_e4m3fn", "float8_e5m2"):
        yield call("float32", narrow, (3, 37), ())
    for wide in ("float16", "bfloat16"):
        yield call(wide, "int8", (3, 37), ())
        yield call(wide, "float8_e4m3fn", (2, 5, 4), (5,))
    yield call("float32", "int8", (2, 5, 7), (5,))
    yield call("float32", "uint8", (2, 5, 6), (2, 5, 2), axis=2, block_size=3)
    yield call("float32", "uint8", (2, 7, 3), (2, 3, 3), axis=1, block_size=3)
    yield call("float16", "int8", (7,), (3,), axis=0, block_size=3)
    yield call("float32", "int8", (0, 3), ())
    if forward:
        yield call("int32", "int16", (9,), ())
        yield call("float32", "uint8", (9,), (), zero=False)
        yield call("float32", "int8", (9,), (), zero=False, output_dtype="int8", precision="float16")
        yield call("float32", "float8_e5m2", (9,), (), saturate=0)
    else:
        whole = [TensorType("int32", (9,)), TensorType("float32", ())]
        yield infer(op, "int32", whole, {})
        yield infer(op, "float16_result", whole, {"output_dtype": "float16"})


def _dynamic(op: str) -> Iterator[OpCall]:
    for shape in ((3, 37), (9_000,), ()):
        yield infer(op, f"dynamic_{len(shape)}", [TensorType("float32", shape)], {}, 3)


def _products(op: str) -> Iterator[OpCall]:
    linear = op == "QLinearMatMul"

    def call(left: str, right: str, a: Ints, b: Ints, rows: Ints, columns: Ints, scale: str = "float32") -> OpCall:
        kinds: list[TensorType | None] = [TensorType(left, a), TensorType(right, b)]
        kinds += [TensorType(left, rows), TensorType(right, columns)]
        if linear:
            zero = TensorType("uint8" if left == "int8" else left, ())
            of_a = [kinds[0], TensorType(scale, rows), kinds[2]]
            kinds = [*of_a, kinds[1], TensorType(scale, columns), kinds[3], TensorType(scale, ()), zero]
        return infer(op, f"{op}_{left}_{right}", kinds, {})

    for left in ("int8", "uint8"):
        for right in ("int8", "uint8"):
            yield call(left, right, (17, 33), (33, 70), (), ())
    yield call("uint8", "int8", (5, 9), (9, 6), (5,), (6,))
    yield call("uint8", "int8", (2, 3, 5, 9), (3, 9, 6), (2, 3, 5, 1), (3, 1, 6))
    yield call("int8", "int8", (9,), (9, 6), (), ())
    yield call("int8", "int8", (4, 300), (300,), (1,), (1,))
    if linear:
        yield call("float8_e4m3fn", "float8_e4m3fn", (5, 9), (9, 6), (), ())
        yield call("float8_e5m2", "float8_e4m3fn", (5, 9), (9, 6), (5,), (6,), "float16")
        yield call("int8", "uint8", (5, 9), (9, 6), (), (), "bfloat16")
    else:
        yield infer(op, "no_zero", [TensorType("int8", (5, 9)), TensorType("uint8", (9, 6))], {})


def _convolutions(op: str) -> Iterator[OpCall]:
    linear = op == "QLinearConv"

    def call(left: str, right: str, x: Ints, w: Ints, each: Ints = (), bias: bool = False, **more: Any) -> OpCall:
        kinds = [TensorType(left, x), TensorType(right, w), TensorType(left, ()), TensorType(right, each)]
        if linear:
            one, by_filter, zero = TensorType("float32", ()), TensorType("float32", each), TensorType("int8", ())
            kinds = [kinds[0], one, kinds[2], kinds[1], by_filter, kinds[3], one, zero]
            kinds += [TensorType("int32", w[:1])] if bias else []
        return infer(op, f"{op}_{left}_{right}", kinds, more)

    yield call("uint8", "int8", (2, 4, 9, 10), (16, 4, 3, 3), (16,), True, pads=[1, 1, 1, 1], strides=[2, 1])
    yield call("int8", "uint8", (2, 4, 9, 10), (4, 1, 3, 3), group=4, auto_pad="SAME_UPPER")
    yield call("uint8", "uint8", (2, 6, 12), (18, 3, 3), group=2, dilations=[2])
    yield call("int8", "int8", (1, 40, 5, 5), (7, 40, 3, 3), (7,))
    yield call("int8", "int8", (0, 5, 4, 4), (7, 5, 1, 1))


_CALLS = {
    "QuantizeLinear": _linear,
    "DequantizeLinear": _linear,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _products,
    "QLinearMatMul": _products,
    "ConvInteger": _convolutions,
    "QLinearConv": _convolutions,
}
FAMILIES = {"quantization": quantization}
