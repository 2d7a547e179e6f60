"""Copies and gathers by several threads are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.runtime import host_copies
from kgrun.runtime.host_copies import HostCopies


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [0, 1, 7, 1_000])
def test_copies_gathers_and_scatters(threads: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copies, "CHUNK", 1_024)
    generator, copies = np.random.default_rng(rows), HostCopies(threads)
    table = generator.normal(size=(2_000, 5)).astype(np.float32)
    chosen = generator.permutation(2_000)[:rows]
    out = np.empty((rows, 5), np.float32)
    copies.gather(table, chosen, out)
    assert (out == table[chosen]).all()
    twin = np.zeros_like(out)
    copies.copy(twin, out)
    assert (twin == out).all()
    wanted = table.copy()
    wanted[chosen] = -out
    copies.scatter(table, chosen, -out)
    assert (table == wanted).all()
    copies.copy(np.empty(()), np.ones(()))
    copies.close()
    copies.close()
