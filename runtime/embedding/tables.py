"""The whole tables of embedding caches, on the host: mapped files that are read and written row by row, or arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from kgrun.graphs import data
from kgrun.graphs.bound import BoundGraph, BoundTable
from kgrun.graphs.errors import GraphError
from kgrun.runtime.host_data import check_array
from kgrun.runtime.host_memory import check_room

Array = np.ndarray[Any, Any]


def open_table(bound: BoundGraph, table: BoundTable, given: Mapping[str, Array], seed: int) -> Array:
    """The rows of `table` as an array, writable where the graph updates them.

    A .npy or .safetensors file is mapped, so that it may be larger than memory: updates stay in private pages, or with
    `persist` go to the file itself. What was given, an .npz or an init is held in memory.

    Raises:
        GraphError: KG358 for `persist` without such a file; data that cannot be read or do not fit.
        UsageError: KG210 for a table without data.
    """
    spec = bound.source.tensors[table.name]
    place = bound.source.place("tensors", table.name)
    if table.name in given:
        array = check_array(given[table.name], table.dtype, table.shape, table.name)
    elif spec.data is not None:
        mapped = _mapped(bound, table, spec.data)
        if mapped is not None:
            return mapped
        array = data.load_array(
            spec.data, folder=bound.source.folder, dtype=table.dtype, shape=table.shape,
            allow_external=bound.source.allows_external_data, where=place,
        )  # fmt: skip
    else:
        array = _made(bound, table, seed)
    if table.persist:
        raise GraphError(
            f"{table.name!r} is to persist, which takes a .npy or .safetensors file named by `data`",
            code="KG358",
            where=place,
            help="its elements lie there row by row and little-endian, so that they are written where they are",
        )
    if not table.updated or (array.flags.writeable and table.name not in given):
        return array
    check_room(array.nbytes, f"a copy of table {table.name!r}")
    return array.copy()


def _made(bound: BoundGraph, table: BoundTable, seed: int) -> Array:
    from kgrun.graphs.errors import UsageError

    spec = bound.source.tensors[table.name]
    if spec.init is None:
        raise UsageError(
            f"table {table.name!r} has no data",
            code="KG210",
            where=bound.source.place("tensors", table.name),
            help=f"pass --input {table.name}=FILE.npy, or give it `data` or `init`",
        )
    check_room(int(np.prod(table.shape)) * data.numpy_dtype(table.dtype).itemsize, f"table {table.name!r}")
    return data.initial_array(spec.init, table.dtype, table.shape, table.name, seed)


def _mapped(bound: BoundGraph, table: BoundTable, reference: str) -> Array | None:
    """The table's file mapped; None where its layout allows no map."""
    from kgrun.graphs.data_files import read_checked
    from kgrun.graphs.data_stored import open_stored, reading

    source, place = bound.source, bound.source.place("tensors", table.name, "data")
    found = data.parse_reference(reference)
    try:
        path = data.inside(found.file, folder=source.folder, allow_external=source.allows_external_data)
        stored = open_stored(path, found.form, found.key, found.file)
        if stored.offset is None:
            return None
        read_checked(path, found, table.dtype, table.shape, reference)  # dtype and shape; it maps, and reads nothing
    except GraphError as error:
        raise error.at(place) from None
    mode = "r" if not table.updated else "r+" if table.persist else "c"
    if mode == "r+" and not os.access(path, os.W_OK):
        text = f"{found.file} cannot be written, and {table.name!r} is to persist in it"
        raise GraphError(text, code="KG372", where=place, help="without `persist` updates stay in memory")
    with reading(path, found.file):
        nbytes = int(np.prod(table.shape)) * stored.itemsize
        raw = np.memmap(path, dtype=np.uint8, mode=mode, offset=stored.offset, shape=(nbytes,))  # type: ignore[call-overload]
    rows: Array = np.asarray(raw.view(np.ndarray)).view(data.numpy_dtype(table.dtype)).reshape(table.shape)
    return rows
