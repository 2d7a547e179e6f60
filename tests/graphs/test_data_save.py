"""Bytes and .safetensors files: written whole, read by others, the same every time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kgrun.graphs.data import load_array, save_bytes, save_npy, save_npz, save_safetensors
from kgrun.graphs.errors import UsageError

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "byte": np.arange(3, dtype=np.uint8),
    "wide é#/": np.arange(6, dtype=np.float64).reshape(2, 3),
    "scalar": np.array(7, dtype=np.int64),
    "empty": np.empty((0, 4), dtype=np.float32),
    "flag": np.array([True, False]),
    "half": np.array([1, -2, 0.5], dtype=ml_dtypes.bfloat16),
    "eighth": np.array([1, -2, 0.5], dtype=ml_dtypes.float8_e4m3fn),
    "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "big": np.arange(3, dtype=">i2"),
}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "w.safetensors", ARRAYS)
    for name, array in ARRAYS.items():
        loaded = load_array(f"w.safetensors#{name}", folder=tmp_path, dtype=array.dtype.newbyteorder("=").name)
        assert loaded.shape == array.shape
        assert loaded.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()


def test_the_library_of_the_format_reads_it(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    plain = {name: array for name, array in ARRAYS.items() if name not in ("half", "eighth")}
    save_safetensors(tmp_path / "w.safetensors", plain)
    loaded = load_file(tmp_path / "w.safetensors")
    assert set(loaded) == set(plain)
    for name, array in plain.items():
        np.testing.assert_array_equal(loaded[name], array)


def test_bytes_depend_on_nothing_but_the_arrays(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "a", ARRAYS)
    save_safetensors(tmp_path / "b", dict(reversed(ARRAYS.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_elements_are_aligned_to_their_width(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "w", ARRAYS)
    data = (tmp_path / "w").read_bytes()
    assert int.from_bytes(data[:8], "little") % 8 == 0
    assert load_array_addresses_are_aligned(data)


def load_array_addresses_are_aligned(data: bytes) -> bool:
    import json

    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return all(row["data_offsets"][0] % ARRAYS[name].dtype.itemsize == 0 for name, row in header.items())


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="__metadata__") as failure:
        save_safetensors(tmp_path / "w", {"__metadata__": np.zeros(1)})
    assert failure.value.code == "KG270"
    with pytest.raises(UsageError, match="cannot write"):
        save_bytes(tmp_path / "no" / "x", b"1")
    assert list(tmp_path.iterdir()) == []


def test_bytes_replace_what_was_there(tmp_path: Path) -> None:
    save_bytes(tmp_path / "x", b"first, longer")
    save_bytes(tmp_path / "x", b"second")
    assert (tmp_path / "x").read_bytes() == b"second"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("save", ["npy", "npz", "safetensors", "bytes"])
def test_a_pipe_is_written_to_not_replaced(tmp_path: Path, save: str) -> None:
    array = np.arange(5, dtype=np.float32)
    pipe, plain = tmp_path / f"pipe.{save}", tmp_path / f"plain.{save}"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (pipe, plain):
            if save == "npy":
                save_npy(path, array)
            elif save == "npz":
                save_npz(path, {"y": array})
            elif save == "safetensors":
                save_safetensors(path, {"y": array})
            else:
                save_bytes(path, array.tobytes())
        assert os.read(reader, 1 << 16) == plain.read_bytes()
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_stays_what_it_is(tmp_path: Path) -> None:
    link = tmp_path / "full.npy"
    link.symlink_to("/dev/full")
    with pytest.raises(UsageError, match="No space left"):
        save_npy(link, np.zeros(3))
    assert link.is_symlink()
