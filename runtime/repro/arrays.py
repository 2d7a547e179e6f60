"""The data of a bundle: inputs in one .npz, weights in one .safetensors, up to a limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kgrun.graphs.bound import BoundGraph, BoundNode, BoundTensor
from kgrun.graphs.data import parse_reference, save_npz, save_safetensors
from kgrun.graphs.errors import KgrunError
from kgrun.graphs.records import dataclass
from kgrun.runtime.host_data import host_array
from kgrun.runtime.repro.slice import Document, set_data, touched

Array = np.ndarray[Any, Any]

LIMIT_BYTES = 1 << 30
INPUTS, WEIGHTS = "inputs.npz", "weights.safetensors"


@dataclass(frozen=True, slots=True)
class Stored:
    """What was written: the inputs' file if there is one, whether data outside the bundle are named, and notes."""

    inputs: str | None
    external: bool
    notes: tuple[str, ...]


def store_arrays(
    folder: Path,
    document: Document,
    bound: BoundGraph,
    nodes: Iterable[BoundNode],
    given: Mapping[str, Array],
    seed: int,
) -> Stored:
    """Write the arrays that the nodes read from outside and let `document` name them.

    Beyond `LIMIT_BYTES` in all, an array made from a seed stays a rule, one from a file is named where it lies, and one
    that was given is left out.
    """
    inputs: dict[str, Array] = {}
    weights: dict[str, Array] = {}
    notes: list[str] = []
    external, room = False, LIMIT_BYTES
    for tensor in _outside(bound, nodes):
        name, spec = tensor.name, tensor.spec
        if tensor.nbytes > room or name in bound.cached:
            external |= _leave(document, bound, tensor, name in given, notes)
            continue
        try:
            array = host_array(bound, tensor, given, seed)
        except KgrunError as error:
            notes.append(f"{name} is not in it: {error.message}")
            continue
        room -= array.nbytes
        if tensor.role == "input" or name in given:
            inputs[name] = array
        elif spec is not None and (spec.data is not None or spec.init is not None):
            weights[name] = array
    if inputs:
        save_npz(folder / INPUTS, inputs)
    if weights:
        save_safetensors(folder / WEIGHTS, weights)
        for name in weights:
            set_data(document, name, f"{WEIGHTS}#{name}")
    return Stored(INPUTS if inputs else None, external, tuple(notes))


def _outside(bound: BoundGraph, nodes: Iterable[BoundNode]) -> list[BoundTensor]:
    """Tensors that come from outside and have no inline value, small ones first."""
    names = touched(bound, nodes)
    found = [
        tensor
        for name, tensor in bound.tensors.items()
        if name in names
        and tensor.producer is None
        and tensor.spec is not None
        and tensor.spec.value is None
        and tensor.spec.string is None
        and tensor.spec.alias_of is None
        and tensor.role in ("input", "parameter", "constant")
    ]
    return sorted(found, key=lambda tensor: tensor.nbytes)


def _leave(document: Document, bound: BoundGraph, tensor: BoundTensor, given: bool, notes: list[str]) -> bool:
    """Note what is left out; whether `document` now names a file outside the bundle."""
    name, spec = tensor.name, tensor.spec
    size = f"{tensor.nbytes:,} bytes, beyond the limit of {LIMIT_BYTES:,} in all"
    size = "a table that stays on the host" if name in bound.cached else size
    if given or spec is None:
        notes.append(f"{name} is not in it ({size}): give it with --input {name}=FILE")
        return False
    if spec.data is None:
        notes.append(f"{name} is made from its seed again ({size})")
        return False
    reference = parse_reference(spec.data, default_key=name)
    path = (bound.source.folder / reference.file).resolve()
    set_data(document, name, f"{path}#{reference.key}" if reference.key is not None else str(path))
    notes.append(f"{name} is read from {path} ({size})")
    return True
