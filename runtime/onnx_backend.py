"""kgrun as a backend of ONNX's test suite, and of anything else that speaks `prepare(model, device) → rep.run(inputs)`.

rep = prepare(model, "CPU")
outputs = rep.run([x, y])
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.bind.dims import dims_from_shapes
from kgrun.graphs.errors import DeviceUnavailable, GraphError, KgrunError
from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.runtime.devices import open_device
from kgrun.runtime.host_data import Array
from kgrun.runtime.sessions import open_session

if TYPE_CHECKING:
    from kgrun.runtime.devices.base import Device

# What a model wants and kgrun has not: an operator, a type, an opset, a part of the format, a kernel for the device.
UNSUPPORTED = frozenset({"KG310", "KG330", "KG331", "KG332", "KG356", "KG375", "KG381", "KG382", "KG710", "KG711"})
# Inputs of so many elements may be shapes, axes and the like.
_FEW = 1_024
_DEVICES = {"CPU": "cpu", "CUDA": "cuda"}
_opened: dict[str, Device] = {}


class UnsupportedModel(Exception):
    """The model needs what kgrun has not; the text says what."""


class PreparedModel:
    """A model ready to run on one device; a context manager that removes its copy of the model."""

    def __init__(self, model: Any, device: Device) -> None:
        self._device = device
        self._folder = tempfile.TemporaryDirectory(prefix="kgrun-onnx-")
        self._path = Path(self._folder.name) / "model.onnx"
        self._path.write_bytes(model.SerializeToString())
        initializers = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [info.name for info in model.graph.input if info.name not in initializers]
        self._outputs = [(info.name, _is_sequence(info.type)) for info in model.graph.output]

    def run(self, inputs: Sequence[Any] | Mapping[str, Any], **_: Any) -> tuple[Array | list[Array], ...]:
        """The model's outputs, in order; sequences are lists of arrays, an optional input that is absent is None.

        Inputs that decide shapes are known while the graph is bound: each call binds it anew.

        Raises:
            UnsupportedModel: kgrun has no way to run it.
            KgrunError: anything else that goes wrong.
        """
        pairs = inputs.items() if isinstance(inputs, Mapping) else zip(self._inputs, inputs, strict=True)
        given = {name: _checked(name, value) for name, value in pairs}
        arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
        lists = {name: value for name, value in given.items() if isinstance(value, list)}
        arrays |= {f"{name}[{index}]": item for name, row in lists.items() for index, item in enumerate(row)}
        structure = {name: value for name, value in given.items() if not isinstance(value, np.ndarray)}
        first: KgrunError | None = None
        for values in _guesses(arrays):
            try:
                return self._run(arrays, structure | values)
            except (GraphError, DeviceUnavailable) as error:
                if error.code not in UNSUPPORTED:
                    raise
                first = first or error
        assert first is not None
        raise UnsupportedModel(f"{first.code}: {first.message}")

    def _run(self, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> tuple[Array | list[Array], ...]:
        graph = onnx_graph(self._path, values=values)
        dims = dims_from_shapes(graph, {name: array.shape for name, array in arrays.items()})
        if dims:
            graph = onnx_graph(self._path, dims=dims, values=values)
        wanted = {name: array for name, array in arrays.items() if name in graph.tensors}
        outputs: dict[str, Array] = {}
        if graph.outputs:
            with open_session(graph, device=self._device, values=wanted, allow_empty=True) as session:
                outputs = dict(session.run(wanted, iterations=1, warmup=0, per_step=False).outputs)
        found = _by_name(dict(self._outputs), graph.outputs, outputs)
        return tuple(found[name] for name, _ in self._outputs)

    def close(self) -> None:
        """Remove the copy of the model."""
        self._folder.cleanup()

    def __enter__(self) -> PreparedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_sequence(kind: Any) -> bool:
    """Whether a TypeProto is a sequence, or an optional one."""
    return bool(kind.HasField("sequence_type") or kind.optional_type.elem_type.HasField("sequence_type"))


def _by_name(
    wanted: Mapping[str, bool], names: Sequence[str], outputs: Mapping[str, Array]
) -> dict[str, Array | list[Array]]:
    """The model's outputs by its names, in whose order `names` are the graph's: one that is an input has another there.

    Args:
        wanted: by name, whether it is a sequence.
    """
    left = list(names)
    found: dict[str, Array | list[Array]] = {}
    for name, many in wanted.items():
        if not many:
            found[name] = outputs[left.pop(0)]
            continue
        count = sum(each.startswith(f"{name}[") for each in left)
        found[name] = [outputs[left.pop(0)] for _ in range(count)]
    return found


def _checked(name: str, value: object) -> Array | list[Array] | None:
    if isinstance(value, (list, tuple)):
        return [_array(name, item) for item in value]
    return None if value is None else _array(name, value)


def _array(name: str, value: object) -> Array:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise UnsupportedModel(f"input {name!r} holds a {type(value).__name__}, not a tensor")
    if value.dtype.kind in "OSU":
        raise UnsupportedModel(f"input {name!r} is text")
    return np.asarray(value)


def _guesses(given: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Inputs that the importer may look at: none, then small whole numbers and booleans, then all small ones."""
    yield {}
    whole = {name: array for name, array in given.items() if array.size <= _FEW and array.dtype.kind in "iub"}
    if whole:
        yield whole
    small = {name: array for name, array in given.items() if array.size <= _FEW and array.dtype.kind in "iubf"}
    if len(small) > len(whole):
        yield small


def prepare(model: Any, device: str = "CPU", **_: Any) -> PreparedModel:
    """`model` (a ModelProto) ready to run on "CPU" or "CUDA" (or kgrun's names: "cpu", "cuda:1")."""
    name = _DEVICES.get(device, device)
    if name not in _opened:
        _opened[name] = open_device(name)[0]
    return PreparedModel(model, _opened[name])


def supports_device(device: str) -> bool:
    """Whether `prepare` takes `device` here."""
    try:
        prepare_device = _DEVICES.get(device, device)
        if prepare_device not in _opened:
            _opened[prepare_device] = open_device(prepare_device)[0]
    except KgrunError:
        return False
    return True
