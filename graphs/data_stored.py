"""Arrays in .npy, .npz and .safetensors files: the header first, the elements only when asked for. Never a pickle."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from kgrun.graphs.data_arrays import Array, DType, numpy_dtype
from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.graphs.errors import GraphError, KgrunError, did_you_mean
from kgrun.graphs.records import dataclass

# The type names of the safetensors format.
SAFETENSORS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
_MAX_HEADER = 100 << 20


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in a file.

    Attributes:
        dtype: a name of DTYPES; None where the file only tells how wide an element is (|V2: numpy's bfloat16).
        type_text: the type as the file spells it.
        itemsize: bytes an element.
        read: the elements, in the file's byte order and layout; memory-mapped where the file is not compressed.
        offset: where in the file the elements lie, little-endian and row-major; None where they do not.
    """

    dtype: str | None
    type_text: str
    itemsize: int
    shape: tuple[int, ...]
    read: Callable[[], Array]
    offset: int | None = None


@contextmanager
def reading(path: Path, name: str) -> Iterator[None]:
    """Turns whatever the parsers of an untrusted file raise into GraphErrors that name the file."""
    try:
        yield
    except (KgrunError, MemoryError):
        raise
    except FileNotFoundError:
        raise GraphError(f"{name}: no such file", code="KG372", help=_near(path)) from None
    except OSError as error:
        raise GraphError(f"{name} cannot be read: {error.strerror or error}", code="KG372") from None
    except Exception as error:
        # zipfile, zlib, ast and numpy raise a dozen kinds of error on damaged files.
        text = str(error).partition("\n")[0][:200] or type(error).__name__
        raise GraphError(f"{name} is damaged or of another kind: {text}", code="KG373") from None


def open_stored(path: Path, form: str, key: str | None, name: str) -> StoredArray:
    """The array `key` of the file at `path`; `form` is npy, npz, safetensors or onnx.

    Raises:
        GraphError: KG372 when the file cannot be opened, KG373 when it is damaged or holds something else, KG374 for
            a key that it has not.
    """
    with reading(path, name):
        if form == "npy":
            return _open_npy(path)
        if form == "onnx":
            return _open_onnx(path, key or "", name)
        return _open_npz(path, key or "", name) if form == "npz" else _open_safetensors(path, key or "", name)


def stored_keys(path: Path, form: str, name: str) -> list[str]:
    """The keys of an .npz or .safetensors file, in the file's order."""
    with reading(path, name):
        if form == "npz":
            with zipfile.ZipFile(path) as archive:
                return [member.removesuffix(".npy") for member in archive.namelist()]
        return list(_safetensors_header(path)[0])


def _open_npy(path: Path) -> StoredArray:
    size = path.stat().st_size
    with path.open("rb") as file:
        shape, fortran, dtype = _npy_header(file)
        offset = file.tell()
    nbytes = prod(shape) * dtype.itemsize
    if offset + nbytes > size:
        raise ValueError(f"{nbytes:,} bytes are announced, {size - offset:,} are there")

    def read() -> Array:
        if nbytes == 0:
            return np.empty(shape, dtype)
        order = "F" if fortran else "C"
        mapped = np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)  # type: ignore[call-overload]
        return np.asarray(mapped.view(np.ndarray))

    plain = not fortran and dtype.byteorder != ">"
    return replace(_stored(dtype, shape, read), offset=offset if plain else None)


def _open_npz(path: Path, key: str, name: str) -> StoredArray:
    with zipfile.ZipFile(path) as archive:
        members = {member.removesuffix(".npy"): member for member in archive.namelist()}
        if key not in members:
            raise _no_key(name, key, list(members))
        info = archive.getinfo(members[key])
        with archive.open(info) as file:
            shape, fortran, dtype = _npy_header(file)
            offset = file.tell()
    nbytes = prod(shape) * dtype.itemsize
    if offset + nbytes != info.file_size:
        raise ValueError(f"{nbytes:,} bytes are announced, {info.file_size - offset:,} are there")

    def read() -> Array:
        with reading(path, name), zipfile.ZipFile(path) as archive, archive.open(info) as file:
            data = file.read()[offset:]
            return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")

    return _stored(dtype, shape, read)


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, DType]:
    """Shape, Fortran order and dtype; leaves `file` at the elements."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version[0]}.{version[1]} of the .npy format")
    with warnings.catch_warnings():
        # Headers written by Python 2 are read all the same.
        warnings.simplefilter("ignore")
        shape, fortran, dtype = readers[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape}")
    return shape, fortran, dtype


def _stored(dtype: DType, shape: tuple[int, ...], read: Callable[[], Array]) -> StoredArray:
    name = dtype.newbyteorder("=").name
    return StoredArray(name if name in DTYPES else None, dtype.str, dtype.itemsize, shape, read)


def _open_safetensors(path: Path, key: str, name: str) -> StoredArray:
    header, start = _safetensors_header(path)
    if key not in header:
        raise _no_key(name, key, list(header))
    entry = header[key]
    spelling, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError(f"the header's entry for {key!r}")
    dtype = SAFETENSORS.get(spelling)
    if dtype is None:
        raise GraphError(f"{name}#{key} has type {spelling}, which kgrun does not know", code="KG375")
    nbytes = prod(shape) * itemsize(dtype)
    if end - begin != nbytes or start + end > path.stat().st_size:
        raise ValueError(f"{key!r} announces {nbytes:,} bytes at [{begin}, {end})")

    def read() -> Array:
        kind = numpy_dtype(dtype).newbyteorder("<")
        if nbytes == 0:
            return np.empty(shape, kind)
        mapped = np.memmap(path, dtype=np.uint8, mode="r", offset=start + begin, shape=(nbytes,))
        return np.asarray(mapped.view(np.ndarray)).view(kind).reshape(shape)

    return StoredArray(dtype, spelling, itemsize(dtype), shape, read, start + begin)


def _open_onnx(path: Path, key: str, name: str) -> StoredArray:
    """An initializer or constant of an ONNX model, from where it lies in the model's files."""
    from kgrun.graphs.importers.onnx.container import open_container

    found = open_container(path)
    if key not in found.arrays:
        raise _no_key(name, key, list(found.arrays))
    return found.stored(key)


def _safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header by key, and where the elements start."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_HEADER:
            raise ValueError("no safetensors header")
        text = file.read(length)
    header = json.loads(text)
    if len(text) < length or not isinstance(header, dict):
        raise ValueError("no safetensors header")
    header.pop("__metadata__", None)
    return header, 8 + length


def _no_key(name: str, key: str, keys: list[str]) -> GraphError:
    listed = ", ".join(keys[:10]) + (f", … ({len(keys)} in all)" if len(keys) > 10 else "")
    return GraphError(
        f"{name} has no array {key!r}",
        code="KG374",
        help=did_you_mean(key, keys) or f"its keys: {listed or 'none'}",
        details={"keys": keys[:100]},
    )


def _near(path: Path) -> str | None:
    try:
        return did_you_mean(path.name, [p.name for p in path.parent.iterdir()])
    except OSError:
        return None
