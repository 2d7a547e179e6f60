"""Copies and gathers by several threads are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.runtime import host_copies
from kgrun.runtime.host_copies import HostCopies


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [0, 1, 7, 1_000])
@pytest.mark.parametrize("compiled", ["0", "1"])
def test_copies_gathers_and_scatters(threads: int, rows: int, compiled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGRUN_NATIVE", compiled)
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
    copies.copy(twin[::2], -out[::2])
    copies.copy(twin[::2].T, out[::2].T)  # parts that are no one piece
    assert (twin == out).all()
    shifted = np.zeros(out.nbytes + 3, np.uint8)  # no boundary of 16 bytes, and a rest
    copies.copy(shifted[1:-2], out.reshape(-1).view(np.uint8))
    assert shifted.tobytes() == b"\0" + out.tobytes() + b"\0\0"
    wanted = table.copy()
    wanted[chosen] = -out
    copies.scatter(table, chosen, -out)
    assert (table == wanted).all()
    copies.copy(np.empty(()), np.ones(()))
    copies.close()
    copies.close()
