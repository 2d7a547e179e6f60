"""Poison tells an element that nothing wrote from any that a kernel would write."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.runtime.checks.poison import poison, unwritten


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_that_nobody_wrote_is_found_whole(dtype: str) -> None:
    content = poison(dtype, 4096)
    assert unwritten(content, dtype).all()
    assert unwritten(content, dtype).size == 4096 // itemsize(dtype)


@pytest.mark.parametrize("dtype", [name for name, kind in DTYPES.items() if kind.kind == "float"])
def test_poison_is_nan_in_float_types(dtype: str) -> None:
    elements = poison(dtype, 1024).view(numpy_dtype(dtype))
    assert np.isnan(elements.astype(np.float32)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", [0, 1, "nan", "ones"])
def test_what_kernels_write_is_not_poison(dtype: str, fill: object) -> None:
    nbytes = 1 << 16
    if fill == "ones":
        content = np.full(nbytes, 0xFF if DTYPES[dtype].kind != "float" else 0x3F, np.uint8)
    elif fill == "nan":
        content = np.zeros(nbytes // itemsize(dtype), numpy_dtype(dtype))
        if DTYPES[dtype].kind == "float" and itemsize(dtype) > 1:
            content[:] = np.nan
        content = content.view(np.uint8)
    else:
        content = np.full(nbytes // itemsize(dtype), fill, numpy_dtype(dtype)).view(np.uint8)
    assert not unwritten(content, dtype).any()


def test_random_bytes_are_not_poison() -> None:
    content = np.random.default_rng(0).integers(0, 256, 1 << 20).astype(np.uint8)
    for dtype in ("int8", "uint8", "int16", "int32", "float32", "int64"):
        assert not unwritten(content, dtype).any()


def test_one_wide_element_and_a_run_of_narrow_ones_are_found() -> None:
    wide = np.zeros(64, np.int32).view(np.uint8)
    wide[40:44] = poison("int32", 256)[40:44]
    assert np.flatnonzero(unwritten(wide, "int32")).tolist() == [10]
    narrow = np.zeros(64, np.uint8)
    narrow[20:28] = poison("uint8", 64)[20:28]
    assert np.flatnonzero(unwritten(narrow, "uint8")).tolist() == list(range(20, 28))
    narrow[20] = 0
    assert not unwritten(narrow, "uint8").any()


def test_a_few_bytes_alone_prove_nothing() -> None:
    assert not unwritten(poison("int8", 2), "int8").any()
    assert unwritten(poison("int8", 5), "int8").all()
