"""The scalar CUDA C expression of an elementwise operator, with its attributes filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kgrun.graphs.dtypes import DTYPES, FLOATS
from kgrun.graphs.operators.base import OpCall, registered

Expression = str | Mapping[str, str] | Callable[[OpCall], str]


def operand_name(index: int) -> str:
    """The name of input `index` in scalar expressions: x, y, z, x3, x4, …"""
    return "xyz"[index] if index < 3 else f"x{index}"


def compute_dtype(dtype: str) -> str:
    """The dtype that elements of `dtype` are computed in."""
    return "float32" if dtype in FLOATS and dtype not in ("float32", "float64") else dtype


def scalar_expression(call: OpCall) -> str:
    """The CUDA C expression of one element of `call`, attributes filled in as literals of type T.

    The operator's `data["helpers"]` holds the device functions that the expression calls.
    """
    expression: Expression = registered()[call.op].data["cuda"]
    if callable(expression):
        return expression(call)
    if isinstance(expression, Mapping):
        expression = expression[DTYPES[call.input(0).dtype].kind]
    for name, value in call.attributes.items():
        if isinstance(value, (int, float)):
            expression = expression.replace("{" + name + "}", literal(value))
    return expression


def literal(value: float) -> str:
    """`value` as a constant of type T."""
    if value != value:
        return "T(__int_as_float(0x7fffffff))"
    if value in (float("inf"), float("-inf")):
        return f"T({'-' if value < 0 else ''}__int_as_float(0x7f800000))"
    return f"T({value!r})"
