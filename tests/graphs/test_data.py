"""Array files: types bit by bit, layouts, damage, keys, and paths that leave the folder; writing; --input."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kgrun.graphs.data import array_type, file_name, load_array, load_inputs, numpy_dtype, save_npy, save_npz
from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.graphs.errors import GraphError, Place, UsageError

Array = np.ndarray[Any, Any]


def safetensors(path: Path, **arrays: tuple[str, tuple[int, ...], bytes]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, content) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def fault(reference: str, folder: Path, **options: Any) -> GraphError:
    with pytest.raises(GraphError) as caught:
        load_array(reference, folder=folder, **options)
    assert caught.value.exit == 3
    return caught.value


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_dtypes_have_the_declared_width(name: str) -> None:
    assert numpy_dtype(name).itemsize == itemsize(name)
    assert numpy_dtype(name).name == name


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("form", ["npy", "npz"])
def test_every_dtype_survives_writing_and_reading(tmp_path: Path, name: str, form: str) -> None:
    bits = np.arange(24, dtype=np.uint8) % (2 if name == "bool" else 61)
    array = np.repeat(bits, itemsize(name)).view(numpy_dtype(name)).reshape(2, 3, 4)
    if form == "npy":
        save_npy(tmp_path / "x.npy", array)
        found = load_array("x.npy", folder=tmp_path, dtype=name, shape=(2, 3, 4))
    else:
        save_npz(tmp_path / "x.npz", {"other": np.zeros(3), "a/b#c.d": array})
        found = load_array("x.npz#a/b#c.d", folder=tmp_path, dtype=name, shape=(2, 3, 4))
    assert found.dtype == numpy_dtype(name)
    assert found.tobytes() == array.tobytes()


def test_fmt_01_raw_two_byte_elements_are_bfloat16_bit_by_bit(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x7FC1, 0xFF80, 0x0001], np.uint16)
    np.save(tmp_path / "w.npy", bits.view("V2"))
    assert np.load(tmp_path / "w.npy").dtype == np.dtype("V2")
    found = load_array("w.npy", folder=tmp_path, dtype="bfloat16", shape=(4,))
    assert found.dtype == np.dtype(ml_dtypes.bfloat16)
    assert found.view(np.uint16).tolist() == bits.tolist()


def test_fmt_01_raw_two_byte_elements_are_no_float32(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.zeros(4, "V2"))
    error = fault("w.npy", tmp_path, dtype="float32", shape=(4,))
    assert error.code == "KG375"
    assert "itemsize 2 != 4" in error.message
    # The right width is not enough: only types that numpy lacks are saved as raw bytes.
    assert fault("w.npy", tmp_path, dtype="float16").code == "KG375"
    assert fault("w.npy", tmp_path).code == "KG375"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("BF16", "bfloat16"), ("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2"), ("F16", "float16")],
)
def test_fmt_01_safetensors_types_are_read_bit_by_bit(tmp_path: Path, spelling: str, name: str) -> None:
    content = bytes(range(8 * itemsize(name)))
    safetensors(tmp_path / "w.safetensors", pad=("U8", (3,), b"abc"), w=(spelling, (2, 4), content))
    found = load_array("w.safetensors#w", folder=tmp_path, dtype=name, shape=(2, 4))
    assert (found.dtype, found.shape, found.tobytes()) == (numpy_dtype(name), (2, 4), content)
    assert array_type("w.safetensors#w", folder=tmp_path) == (name, (2, 4))


def test_safetensors_written_by_the_library_are_read(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "b": np.array(True), "c": np.zeros((0, 3), np.float32)}
    save_file(arrays, tmp_path / "w.safetensors")
    for key, array in arrays.items():
        found = load_array(f"w.safetensors#{key}", folder=tmp_path, dtype=array.dtype.name, shape=array.shape)
        assert np.array_equal(found, array)


def test_files_are_mapped_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.arange(1000.0))
    safetensors(tmp_path / "w.safetensors", w=("F64", (1000,), np.arange(1000.0).tobytes()))
    for reference in ("w.npy", "w.safetensors#w"):
        found = load_array(reference, folder=tmp_path)
        base = found
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert isinstance(base, np.memmap)
        assert not found.flags.writeable


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">u2", "<f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_byte_order_and_fortran_order_are_undone(tmp_path: Path, dtype: str, order: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype, order=order)
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", x=array)
    for reference in ("x.npy", "x.npz#x"):
        name = np.dtype(dtype).newbyteorder("=").name
        found = load_array(reference, folder=tmp_path, dtype=name, shape=(2, 3))
        assert found.flags.c_contiguous
        assert found.dtype.isnative
        assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_scalars_and_empty_arrays(tmp_path: Path, shape: tuple[int, ...]) -> None:
    save_npy(tmp_path / "x.npy", np.ones(shape, ">f4"))
    save_npz(tmp_path / "x.npz", {"x": np.ones(shape, np.float32)})
    for reference in ("x.npy", "x.npz#x"):
        assert load_array(reference, folder=tmp_path, dtype="float32", shape=shape).shape == shape


def test_mismatches_name_both_sides_and_the_place(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3)))
    where = Place("g.yaml", ("tensors", "x", "data"), 3, 4)
    dtype = fault("x.npy", tmp_path, dtype="float32", where=where)
    assert (dtype.code, dtype.where) == ("KG375", where)
    assert "float64" in dtype.message
    assert "float32" in dtype.message
    shape = fault("x.npy", tmp_path, dtype="float64", shape=(3, 2), where=where)
    assert (shape.code, shape.message) == ("KG376", "x.npy has shape [2, 3], expected [3, 2]")
    assert array_type("x.npy", folder=tmp_path) == ("float64", (2, 3))


def test_missing_keys_are_listed_and_guessed(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", weight=np.zeros(1), bias=np.zeros(1))
    assert fault("x.npz#wieght", tmp_path).help == "did you mean 'weight'?"
    listed = fault("x.npz#zzz", tmp_path)
    assert (listed.code, listed.help) == ("KG374", "its keys: weight, bias")
    safetensors(tmp_path / "x.safetensors", weight=("F32", (1,), b"1234"))
    assert fault("x.safetensors#wieght", tmp_path).help == "did you mean 'weight'?"


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "pwned"),)

    np.save(tmp_path / "x.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=np.array([Bomb()], dtype=object))
    for reference in ("x.npy", "x.npz#x"):
        error = fault(reference, tmp_path)
        assert error.code == "KG373"
        assert "Python objects" in error.message
    assert not (tmp_path / "pwned").exists()


def damaged(tmp_path: Path) -> dict[str, bytes]:
    np.save(tmp_path / "good.npy", np.arange(100.0))
    np.savez_compressed(tmp_path / "good.npz", x=np.arange(100.0))
    safetensors(tmp_path / "good.safetensors", x=("F64", (100,), np.arange(100.0).tobytes()))
    return {f"good.{form}": (tmp_path / f"good.{form}").read_bytes() for form in ("npy", "npz", "safetensors")}


def test_damaged_files_end_in_graph_errors(tmp_path: Path) -> None:
    """Every truncation and many bit flips: an array or a GraphError, never another exception."""
    random = np.random.default_rng(0)
    arrays = 0
    codes = set()
    for name, data in damaged(tmp_path).items():
        ending = name.partition(".")[2]
        cases = [data[:cut] for cut in (0, 1, 7, 8, 10, 50, 80, 128, 200, len(data) - 1)]
        for _ in range(150):
            flipped = bytearray(data)
            for place in random.integers(0, min(300, len(data)), size=3):
                flipped[place] ^= 1 << random.integers(0, 8)
            cases.append(bytes(flipped))
        for case in cases:
            (tmp_path / f"bad.{ending}").write_bytes(case)
            try:
                load_array(f"bad.{ending}" + ("" if ending == "npy" else "#x"), folder=tmp_path, dtype="float64")
                arrays += 1
            except GraphError as error:
                codes.add(error.code)
    assert "KG373" in codes
    assert codes <= {"KG373", "KG374", "KG375"}
    assert 10 < arrays < 400


def test_other_contents_under_an_arrays_name(tmp_path: Path) -> None:
    for name, data in {"a.npy": b"hello", "b.npz": b"\x93NUMPY", "c.safetensors": b"\xff" * 100, "d.npy": b""}.items():
        (tmp_path / name).write_bytes(data)
        assert fault(name + ("" if name.endswith("npy") else "#x"), tmp_path).code == "KG373"
    (tmp_path / "e.npy").mkdir()
    assert fault("e.npy", tmp_path).code == "KG372"
    assert fault("good.npy", tmp_path).code == "KG372"
    assert fault("a\0.npy", tmp_path).code == "KG372"


def test_a_header_cannot_announce_more_than_is_there(tmp_path: Path) -> None:
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(117) + "\n"
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    (tmp_path / "x.npy").write_bytes(header + bytes(80))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", header + bytes(80))
    safetensors(tmp_path / "x.safetensors", x=("F64", (1 << 40,), bytes(80)))
    for reference in ("x.npy", "x.npz#x", "x.safetensors#x"):
        error = fault(reference, tmp_path)
        assert error.code == "KG373"
        assert "8,796,093,022,208 bytes" in error.message


def test_paths_stay_in_the_folder_unless_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    (folder / "sub").mkdir(parents=True)
    np.save(tmp_path / "out.npy", np.zeros(2))
    np.save(folder / "sub" / "in.npy", np.ones(2))
    (folder / "link.npy").symlink_to(tmp_path / "out.npy")
    (folder / "inner.npy").symlink_to(folder / "sub" / "in.npy")
    (tmp_path / "graph2").mkdir()
    np.save(tmp_path / "graph2" / "x.npy", np.zeros(2))
    for reference in (
        "../out.npy",
        "link.npy",
        str(tmp_path / "out.npy"),
        "../graph2/x.npy",
        str(folder / "sub/in.npy"),
    ):
        error = fault(reference, folder)
        assert error.code == "KG371"
        assert "--allow-external-data" in (error.help or "")
        assert load_array(reference, folder=folder, allow_external=True).shape == (2,)
    for reference in ("sub/in.npy", "sub/../sub/in.npy", "inner.npy"):
        assert load_array(reference, folder=folder).tolist() == [1, 1]


def test_writing_replaces_whole_files_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    save_npz(path, {"a": np.arange(3)})
    first = path.read_bytes()
    save_npz(path, {"a": np.arange(3)})
    assert path.read_bytes() == first
    with pytest.raises(ValueError, match="Object arrays"):
        save_npz(path, {"a": np.arange(4), "b": np.array([object()])})
    assert path.read_bytes() == first
    assert os.listdir(tmp_path) == ["x.npz"]
    with pytest.raises(UsageError) as caught:
        save_npy(tmp_path / "no" / "x.npy", np.zeros(1))
    assert (caught.value.code, caught.value.exit) == ("KG270", 2)


def test_file_names_are_safe_and_different() -> None:
    names = ["a", "A", "a/b", "a:b", "../x", ".x", "x" * 300, "x" * 301, "é", "a%2Fb", "con\0", " ", "a b", "-", "b[0]"]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    assert all(len(f) <= 200 and not f.startswith(".") and not set(f) & set("/\\:\0 ") for f in files)
    assert file_name("conv1.weight") == "conv1.weight"


def test_inputs_by_option_and_by_archive(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3.0))
    np.savez(tmp_path / "in.npz", x=np.zeros(3), y=np.ones(2))
    known: dict[str, tuple[str | None, tuple[int, ...] | None]] = {
        "x": ("float64", (3,)),
        "y": ("float64", None),
        "a=b": (None, None),
    }
    found = load_inputs([f"x={tmp_path}/x.npy", f"a=b={tmp_path}/in.npz#y"], [str(tmp_path / "in.npz")], known)
    assert {name: array.tolist() for name, array in found.items()} == {"x": [0, 1, 2], "y": [1, 1], "a=b": [1, 1]}
    assert load_inputs([f"y={tmp_path}/in.npz"], [], known)["y"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("option", "code", "part"),
    [
        ("z={}/x.npy", "KG271", "inputs: x, yy"),
        ("yyy={}/x.npy", "KG271", "did you mean 'yy'?"),
        ("x", "KG272", None),
        ("=x.npy", "KG272", None),
        ("x=", "KG272", None),
        ("x={}/x.bin", "KG272", "file.npy"),
    ],
)
def test_wrong_input_options_are_usage_errors(tmp_path: Path, option: str, code: str, part: str | None) -> None:
    np.save(tmp_path / "x.npy", np.arange(3.0))
    with pytest.raises(UsageError) as caught:
        load_inputs([option.format(tmp_path)], [], {"x": (None, None), "yy": (None, None)})
    assert caught.value.code == code
    assert part is None or part in (caught.value.help or "")


def test_wrong_input_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3.0))
    np.savez(tmp_path / "in.npz", q=np.zeros(3))
    with pytest.raises(UsageError, match="given twice"):
        load_inputs([f"x={tmp_path}/x.npy"] * 2, [], {"x": (None, None)})
    with pytest.raises(UsageError, match="no input 'q'"):
        load_inputs([], [str(tmp_path / "in.npz")], {"x": (None, None)})
    with pytest.raises(UsageError, match=r"not an \.npz"):
        load_inputs([], [str(tmp_path / "x.npy")], {"x": (None, None)})
    with pytest.raises(GraphError) as caught:
        load_inputs([f"x={tmp_path}/x.npy"], [], {"x": ("float32", None)})
    assert caught.value.code == "KG375"
    assert "--input x=" in str(caught.value.where)
