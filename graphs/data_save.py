"""Writes bytes, and arrays to .npy, .npz and .safetensors files: whole or not at all."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from kgrun.graphs.data_arrays import Array
from kgrun.graphs.data_stored import SAFETENSORS, StoredArray
from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.errors import UsageError
from kgrun.graphs.whole_files import replacing

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]|^\.+")
_MAX_STEM = 200


def save_bytes(path: Path, data: bytes) -> None:
    """Write `data`. UsageError KG270 when it cannot be written."""
    with _replacing(path) as file:
        file.write(data)


def save_npy(path: Path, array: Array) -> None:
    """Write `array`; types that numpy lacks as raw bytes (|V2, |V1). UsageError KG270 when it cannot be written."""
    with _replacing(path) as file:
        np.lib.format.write_array(file, _plain(array), allow_pickle=False)


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write `arrays` as an uncompressed .npz. UsageError KG270 when it cannot be written.

    The same arrays give the same bytes: the archive carries no times.
    """
    with _replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _plain(array), allow_pickle=False)


def save_safetensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write `arrays` as .safetensors. UsageError KG270 when it cannot be written, or for a name that cannot be a key.

    The same arrays give the same bytes, in whatever order they come: wider elements first, so that each array lies at
    a multiple of its element's width; then by name (https://github.com/huggingface/safetensors, "Format").
    """
    if "__metadata__" in arrays:
        raise UsageError(f"{path}: '__metadata__' is no key that an array may have", code="KG270")
    rows = {name: (array.dtype.newbyteorder("=").name, array.shape) for name, array in arrays.items()}
    _write_safetensors(path, rows, lambda name: arrays[name])


def save_stored(path: Path, arrays: Mapping[str, StoredArray]) -> None:
    """As `save_safetensors`, of arrays in other files: one at a time is read. Raises what reading them raises too."""
    rows = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    _write_safetensors(path, rows, lambda name: arrays[name].read())


def _write_safetensors(
    path: Path, rows: Mapping[str, tuple[str, tuple[int, ...]]], read: Callable[[str], Array]
) -> None:
    """Write the arrays that `read` gives by name; `rows` are their dtypes and shapes."""
    spelling = {name: text for text, name in SAFETENSORS.items()}
    ordered = sorted(rows, key=lambda name: (-itemsize(rows[name][0]), name))
    header, end = {}, 0
    for name in ordered:
        dtype, shape = rows[name]
        start, end = end, end + prod(shape) * itemsize(dtype)
        header[name] = {"dtype": spelling[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with _replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in ordered:
            file.write(_little_endian(read(name)).reshape(-1).view(np.uint8).data)


def file_name(name: str) -> str:
    """A file's name, without ending, for the tensor or kernel `name`: no separators, no leading dots, not too long.

    Different names stay different: what is not a letter, digit, `_`, `-` or `.` becomes %XX.
    """
    quoted = _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in _bytes(found[0])), name)
    if len(quoted) <= _MAX_STEM:
        return quoted
    import hashlib

    return f"{quoted[: _MAX_STEM - 17]}-{hashlib.sha256(_bytes(name)).hexdigest()[:16]}"


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")  # one that comes from a path may be no UTF-8


def _plain(array: Array) -> Array:
    """`array` with element types that .npy can name."""
    array = np.asarray(array)
    if array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return array.view(f"V{array.dtype.itemsize}")
    return array


def _little_endian(array: Array) -> Array:
    """`array`, row-major, in the byte order of .safetensors files."""
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array)


@contextmanager
def instead_of(staging: Path, folder: Path) -> Iterator[None]:
    """Errors of files that are made in `staging` name the folder they were to come to, which is the one known."""
    try:
        yield
    except UsageError as error:
        raise UsageError(
            error.message.replace(str(staging), str(folder)), code=error.code, where=error.where, help=error.help
        ) from None


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """As `replacing`; UsageError KG270 where the file cannot be written."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", code="KG270") from None
