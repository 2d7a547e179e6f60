"""Dimension expressions of exporters in kgrun's syntax: the same value for every size."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.expressions import evaluate
from kgrun.graphs.importers.onnx.dims import Dims


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("past + 1", "past + 1"),
        ("floor(height/2 - 1/2) + 1", "(height - 1) // 2 + 1"),
        ("floor(floor(h/2)/2)", "((h) // 2) // 2"),
        ("ceiling(w/4)", "cdiv(w, 4)"),
        ("2*n - n", "n"),
        ("Max(1, n)", "max(1, n)"),
        ("Mod(n, 8)", "(n) % (8)"),
        ("n*m", "(n) * (m)"),
        ("n/2", None),
        ("n**2", None),
        ("sqrt(n)", None),
        ("n + ", None),
        ("3.5 + n", None),
    ],
)
def test_expressions(text: str, wanted: str | None) -> None:
    dims = Dims({})
    for name in ("past", "height", "h", "w", "n", "m"):
        dims.entry(name, "x", 0)
    assert dims.expression(text) == wanted


_Terms: Any = st.recursive(
    st.integers(0, 20).map(str) | st.sampled_from(["a", "b"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["floor", "ceiling"]), inner, st.integers(1, 5)).map(
            lambda t: f"{t[0]}({t[1]}/{t[2]} - 1/2)"
        ),
        st.tuples(st.sampled_from(["Max", "Min"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(_Terms, st.integers(1, 50), st.integers(1, 50))
def test_values_are_those_of_exact_arithmetic(text: str, a: int, b: int) -> None:
    dims = Dims({})
    for name in ("a", "b"):
        dims.entry(name, "x", 0)
    found = dims.expression(text)
    if found is None:
        return  # no more than a name or a number, or a sum that need not be whole
    scope = {"a": Fraction(a), "b": Fraction(b), "floor": math.floor, "ceiling": math.ceil, "Max": max, "Min": min}
    import re

    exact = re.sub(r"/(\d+)", r"/Fraction(\1)", text)
    assert evaluate(found, {"a": a, "b": b}) == eval(exact, {"Fraction": Fraction, **scope})
