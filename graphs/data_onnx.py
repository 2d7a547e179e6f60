"""Arrays of ONNX models: a TensorProto's elements from where they lie, in the message, the model's file or another."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from kgrun.graphs.data_arrays import Array, numpy_dtype
from kgrun.graphs.data_paths import inside
from kgrun.graphs.data_stored import StoredArray
from kgrun.graphs.dtypes import ONNX_DTYPES, itemsize
from kgrun.graphs.errors import DeviceUnavailable, GraphError

Message = Any  # of onnx's protobuf classes, which have no types

# The `location` of data that lie in the model file itself (`importers.onnx.wire`), which no file can know.
SELF = f"\0{os.urandom(16).hex()}"
# Integers of which bytes hold several, low ones first: their bits, and the type that they are read as.
PACKED = {21: (4, "uint8"), 22: (4, "int8"), 25: (2, "uint8"), 26: (2, "int8")}


def import_onnx() -> Any:
    """The onnx package; DeviceUnavailable KG711 where it is missing."""
    try:
        import onnx
    except ImportError as error:
        raise DeviceUnavailable(
            f"reading ONNX models needs the onnx package: {error}", code="KG711", help="pip install 'kgrun[onnx]'"
        ) from None
    return onnx


def stored_tensor(tensor: Message, name: str, model: Path) -> StoredArray:
    """`tensor` as an array whose elements are read when asked for.

    Raises:
        GraphError: KG375 for an element type that kgrun does not have, KG373 for data that do not fit the shape.
    """
    if hasattr(tensor, "indices"):
        return _sparse(tensor, name, model)
    number, shape = tensor.data_type, tuple(tensor.dims)
    if number in PACKED:
        return _packed(tensor, name, model)
    dtype = ONNX_DTYPES.get(number)
    if dtype is None:
        raise GraphError(f"{name!r} has element type {type_name(number)}, which kgrun does not know", code="KG375")
    if any(n < 0 for n in shape):
        raise GraphError(f"{name!r} has shape {list(shape)}", code="KG373", where=str(model))
    nbytes = prod(shape) * itemsize(dtype)
    if tensor.data_location == 1:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        return StoredArray(dtype, dtype, itemsize(dtype), shape, _external(entries, model, name, dtype, shape, nbytes))

    def read() -> Array:
        if tensor.HasField("raw_data"):
            if len(tensor.raw_data) != nbytes:
                raise _misfit(name, len(tensor.raw_data), nbytes, model)
            return np.frombuffer(tensor.raw_data, numpy_dtype(dtype).newbyteorder("<")).reshape(shape)
        return _typed(tensor, name, dtype, shape, model)

    return StoredArray(dtype, dtype, itemsize(dtype), shape, read)


def _packed(tensor: Message, name: str, model: Path) -> StoredArray:
    """Integers of 2 or 4 bits, each as a byte."""
    (bits, dtype), shape = PACKED[tensor.data_type], tuple(tensor.dims)
    bytes_of = import_onnx().TensorProto()
    bytes_of.CopyFrom(tensor)
    bytes_of.data_type = import_onnx().TensorProto.UINT8
    bytes_of.dims[:] = [-(-prod(shape) * bits // 8)]
    held = stored_tensor(bytes_of, name, model)

    def read() -> Array:
        codes = (held.read()[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & (2**bits - 1)
        found = codes.reshape(-1)[: prod(shape)].astype(numpy_dtype(dtype)).reshape(shape)
        if dtype == "int8":
            found = np.where(found < 2 ** (bits - 1), found, found - 2**bits).astype(np.int8)
        return np.asarray(found)

    return StoredArray(dtype, type_name(tensor.data_type), 1, shape, read)


def type_name(number: int) -> str:
    """ONNX's name of an element type."""
    try:
        return str(import_onnx().TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"number {number}"


def _typed(tensor: Message, name: str, dtype: str, shape: tuple[int, ...], model: Path) -> Array:
    """Elements from the fields float_data, int32_data and so on."""
    try:
        made = import_onnx().numpy_helper.to_array(tensor)
    except Exception as error:
        raise GraphError(f"{name!r} is damaged: {error}", code="KG373", where=str(model)) from None
    return np.asarray(made).astype(numpy_dtype(dtype), copy=False).reshape(shape)


def _external(
    entries: dict[str, str], model: Path, name: str, dtype: str, shape: tuple[int, ...], nbytes: int
) -> Callable[[], Array]:
    """A function that maps the elements of a tensor kept in a file; its path may not leave the model's folder."""
    location = entries.get("location", "")
    if not location:
        raise GraphError(f"{name!r} lies in a file that has no name", code="KG373", where=str(model))
    path = model if location == SELF else inside(location, folder=model.parent)
    named = model.name if location == SELF else location
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", nbytes))
    except ValueError:
        offset, length = -1, 0
    if offset < 0 or length < 0:
        raise GraphError(f"{name!r} has a damaged reference to {named}", code="KG373", where=str(model))
    if length != nbytes:
        raise _misfit(name, length, nbytes, model)

    def read() -> Array:
        kind = numpy_dtype(dtype).newbyteorder("<")
        if nbytes == 0:
            return np.empty(shape, kind)
        try:
            if os.path.getsize(path) < offset + nbytes:
                raise _misfit(name, max(os.path.getsize(path) - offset, 0), nbytes, model)
            mapped = np.memmap(path, np.uint8, "r", offset, (nbytes,))
        except OSError as error:
            text = f"{name!r} lies in {named}, which cannot be read: {error.strerror}"
            raise GraphError(text, code="KG372", where=str(model)) from None
        return np.asarray(mapped.view(np.ndarray)).view(kind).reshape(shape)

    return read


def _sparse(tensor: Message, name: str, model: Path) -> StoredArray:
    """A sparse tensor as a dense array (coordinates either linear or one column an axis)."""
    values = stored_tensor(tensor.values, name, model)
    shape = tuple(tensor.dims)

    def read() -> Array:
        dense = np.zeros(prod(shape), numpy_dtype(str(values.dtype)))
        places = stored_tensor(tensor.indices, name, model).read()
        if places.ndim == 2:
            places = np.ravel_multi_index(tuple(places.T), shape)
        dense[places] = values.read()
        return dense.reshape(shape)

    return StoredArray(values.dtype, values.type_text, values.itemsize, shape, read)


def _misfit(name: str, found: int, wanted: int, model: Path) -> GraphError:
    text = f"{name!r} needs {wanted:,} bytes, {found:,} are there"
    return GraphError(text, code="KG373", where=str(model))
