"""A data reference of a graph to an array of the declared type: checked, in native byte order, row-major."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from kgrun.graphs.data_arrays import EXTRA, Array, numpy_dtype
from kgrun.graphs.data_paths import Reference, inside, parse_reference
from kgrun.graphs.data_stored import StoredArray, open_stored, reading
from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.errors import GraphError, Place, placed


def load_array(
    reference: str,
    *,
    folder: Path,
    dtype: str | None = None,
    shape: tuple[int, ...] | None = None,
    allow_external: bool = False,
    where: Place | None = None,
) -> Array:
    """The array that `reference` (`x.npy`, `x.npz#key`, `x.safetensors#key`) names, seen from `folder`.

    Memory-mapped and read-only where the file's layout allows it, a copy otherwise. Types are never converted; raw
    two-byte elements (|V2, as numpy saves bfloat16) are taken bit by bit for bfloat16, |V1 for the fp8 types.

    Raises:
        GraphError: KG370 to KG376, at `where`.
    """
    with placed(where):
        found = parse_reference(reference)
        path = inside(found.file, folder=folder, allow_external=allow_external)
        return read_checked(path, found, dtype, shape, reference)


def array_type(
    reference: str, *, folder: Path, allow_external: bool = False, where: Place | None = None
) -> tuple[str | None, tuple[int, ...]]:
    """dtype and shape from the file's header alone; None where the file does not tell the dtype. Raises as above."""
    with placed(where):
        found = parse_reference(reference)
        path = inside(found.file, folder=folder, allow_external=allow_external)
        stored = open_stored(path, found.form, found.key, found.file)
        return stored.dtype, stored.shape


def read_checked(
    path: Path, reference: Reference, dtype: str | None, shape: tuple[int, ...] | None, text: str
) -> Array:
    """The array of `reference` at `path`, which must have `dtype` and `shape` where they are given."""
    stored = open_stored(path, reference.form, reference.key, reference.file)
    kind = checked_dtype(stored, dtype, text)
    if shape is not None and stored.shape != shape:
        raise GraphError(f"{text} has shape {list(stored.shape)}, expected {list(shape)}", code="KG376")
    with reading(path, reference.file):
        array = stored.read()
        if array.dtype.kind == "V" and array.dtype != numpy_dtype(kind):
            array = array.view(numpy_dtype(kind))
        elif array.dtype.byteorder == (">" if sys.byteorder == "little" else "<"):
            array = array.astype(array.dtype.newbyteorder("="))
        # `ascontiguousarray` makes one dimension of none.
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def checked_dtype(stored: StoredArray, dtype: str | None, text: str) -> str:
    """The dtype of a file's array, which must be `dtype` where that is given; GraphError KG375 for any other."""
    if dtype is None:
        if stored.dtype is None:
            raise GraphError(f"{text} has type {stored.type_text}, which tells no dtype", code="KG375")
        return stored.dtype
    if stored.dtype == dtype:
        return dtype
    if stored.dtype is None and stored.type_text.lstrip("<>|")[0] == "V":
        if stored.itemsize != itemsize(dtype):
            reason = f"itemsize {stored.itemsize} != {itemsize(dtype)}"
            raise GraphError(f"{text} has type {stored.type_text}, expected {dtype}: {reason}", code="KG375")
        if dtype in EXTRA:
            return dtype
    raise GraphError(
        f"{text} has dtype {stored.dtype or stored.type_text}, expected {dtype}",
        code="KG375",
        help="convert the file, or declare the dtype that it has",
    )
