"""Einsum: equations are numpy's, whatever is implicit in them; Det of products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import InferenceError, TensorType
from tests.runtime.kernels.cpu.calls import run

Shapes = tuple[tuple[int, ...], ...]


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhid, bhjd -> bhij", ((2, 3, 4, 5), (2, 3, 6, 5))),
        ("ij,jk", ((2, 3), (3, 4))),
        ("ba", ((2, 3),)),
        ("bA,Ac", ((2, 3), (3, 4))),
        ("...ii->...i", ((2, 3, 3),)),
        ("...a,a...->...", ((2, 3, 4), (4, 3))),
        ("i...,j...->ij...", ((2, 3, 1), (4, 5))),
        ("...,...", ((3,), (2, 3))),
        ("ij,jk,kl,l->i", ((2, 3), (3, 4), (4, 5), (5,))),
        (",i", ((), (3,))),
        ("ij,ij->ij", ((2, 3), (1, 3))),
        ("ij,jk->ik", ((2, 1), (3, 4))),
        ("bij,bjk->bik", ((1, 2, 3), (4, 3, 2))),
    ],
)
def test_equations_are_numpy_s(equation: str, shapes: Shapes) -> None:
    rng = np.random.default_rng(0)
    arrays: list[Any] = [rng.integers(-4, 5, shape) for shape in shapes]
    (found,) = run("Einsum", *arrays, equation=equation)
    np.testing.assert_array_equal(found, np.einsum(equation, *arrays))
    (floats,) = run("Einsum", *(array.astype(np.float16) for array in arrays), equation=equation)
    np.testing.assert_array_equal(floats, np.einsum(equation, *arrays).astype(np.float16))


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk->ik", "2 terms for 1 inputs"),
        ("ijk->i", "for an input of rank 2"),
        ("ii->i", "'i' is both 2 and 3"),
        ("ij->ik", "no output 'ik'"),
        ("ij->ii", "no output 'ii'"),
        ("i1->i", "for an input of rank 2"),
    ],
)
def test_wrong_equations_are_refused(equation: str, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        infer("Einsum", "n", [TensorType("float32", (2, 3))], {"equation": equation})


def test_det_of_a_product_is_the_product() -> None:
    a, b = np.random.default_rng(1).normal(size=(2, 3, 4, 4))
    parts = [run("Det", m)[0] for m in (a, b)]
    np.testing.assert_allclose(run("Det", a @ b)[0], parts[0] * parts[1])
