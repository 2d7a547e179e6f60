"""Rows that a shuffle picked are those of numpy, wherever they are put."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.runtime.host_copies import HostCopies
from kgrun.runtime.queues.picked import Picked, put


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("shape", [(40,), (40, 3), (40, 2, 5)])
def test_picked_rows_are_gathered_where_they_are_to_lie(shape: tuple[int, ...], contiguous: bool) -> None:
    whole = np.arange(2 * np.prod(shape), dtype=np.int32).reshape(2 * shape[0], *shape[1:])
    array = whole[:40] if contiguous else whole[::2]
    rows = np.random.default_rng(0).permutation(40)[:7]
    picked, place = Picked(array, rows), np.zeros((7, *shape[1:]), np.int32)
    assert (picked.dtype, picked.shape, len(picked)) == (array.dtype, place.shape, 7)
    assert (np.asarray(picked) == array[rows]).all()
    assert np.asarray(picked, dtype=np.float64).dtype == np.float64
    copies = HostCopies()
    put(copies, place, picked)
    assert (place == array[rows]).all()
    put(copies, place, array[:7])
    assert (place == array[:7]).all()
    copies.close()
