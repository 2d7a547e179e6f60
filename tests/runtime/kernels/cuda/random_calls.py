"""Calls of random operators for the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType

FLOATS = ("float32", "float16", "bfloat16", "float64")


def random_values(op: str) -> Iterator[OpCall]:
    """Calls of one random operator, with a seed and without."""
    if op == "Multinomial":
        for dtype in FLOATS:
            yield infer(op, f"multinomial_{dtype}", [TensorType(dtype, (3, 9))], {"sample_size": 40})
        yield infer(op, "wide", [TensorType("float32", (2, 5))], {"sample_size": 3, "dtype": "int64", "seed": 1.5})
        yield infer(op, "none", [TensorType("float32", (2, 5))], {"sample_size": 0})
        return
    if op == "Bernoulli":
        for dtype in FLOATS:
            yield infer(op, f"bernoulli_{dtype}", [TensorType(dtype, (5, 60))], {})
        for to in ("bool", "int64", "uint8"):
            yield infer(op, to, [TensorType("float32", (5, 60))], {"dtype": to, "seed": 3.0})
        return
    like = [TensorType("int32", (5, 60))] if op.endswith("Like") else []
    shape = {} if like else {"shape": [5, 60]}
    for dtype in FLOATS:
        yield infer(op, f"{op}_{dtype}", like, {**shape, "dtype": dtype})
    ends = {"mean": 3.0, "scale": 0.5} if "Normal" in op else {"low": -2.0, "high": 5.0}
    yield infer(op, "seeded", like, {**shape, **ends, "seed": 7.0})


FAMILIES = {"random_values": random_values}
