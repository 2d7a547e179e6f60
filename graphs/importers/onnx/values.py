"""What the importer knows of a value while it walks a model: its type, its elements, where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from kgrun.graphs.data_stored import StoredArray
from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import Constant, Scalar, TensorType
from kgrun.graphs.operators.known import LIMIT

# Results of so many elements are folded: more would be hard to read.
FOLDED = 256
# Arrays of the model of so many elements are written into the graph itself; longer ones stay in the weights file.
INLINE = {"float": 16, "int": 64, "uint": 64, "bool": 64}
_KEPT = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})  # plain Python cannot round to them


@dataclass(slots=True, eq=False)
class Value:
    """One tensor of the graph in the making.

    Attributes:
        name: as the model calls it; made unique, where need be, when the graph is written.
        type: dtype and shape, and the elements of a small constant. None where nothing is known.
        exact: false where a dimension is unbound and `type` only holds for a guess of it: good for ranks and dtypes.
        key: of the array in the model file that holds the elements.
        declared: dtype and shape as the graph's input declares them.
        constant: the elements are known now and for ever.
        broken: made by a node that cannot be imported; what reads it is not looked at.
        packed: the model's type of integers that lie several to a byte in it, and are bytes here.
    """

    name: str
    type: TensorType | None = None
    exact: bool = False
    key: str | None = None
    declared: tuple[str, list[int | str]] | None = None
    constant: bool = False
    broken: bool = False
    packed: str | None = None

    @property
    def known(self) -> Constant | None:
        """The elements, row-major, where they are known before the run."""
        return self.type.value if self.type is not None and self.exact else None

    @property
    def rank(self) -> int | None:
        """Number of axes."""
        return None if self.type is None else len(self.type.shape)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape, where no unbound dimension decides it."""
        return self.type.shape if self.type is not None and self.exact else None


@dataclass(slots=True, eq=False)
class Emitted:
    """A node of the graph in the making; `bodies` are graphs by role, for If, Loop and Scan."""

    op: str
    name: str
    inputs: list[Value | None]
    outputs: list[Value | None]
    attributes: dict[str, Any]
    bodies: dict[str, Body] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Body:
    """Inputs, nodes and outputs of a graph or of the body of a control operator."""

    inputs: list[Value] = field(default_factory=list)
    nodes: list[Emitted] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)


def inline(name: str, dtype: str, shape: tuple[int, ...], elements: Constant) -> Value:
    """A constant whose elements stand in the graph."""
    return Value(name, TensorType(dtype, shape, elements), exact=True, constant=True)


def from_array(name: str, key: str, stored: StoredArray) -> Value:
    """A constant of the model file; its elements are known where they are few."""
    assert stored.dtype is not None
    size = 1
    for extent in stored.shape:
        size *= extent
    elements = None
    if size <= LIMIT and stored.dtype not in _KEPT:
        elements = tuple(stored.read().ravel().tolist())
    short = elements is not None and size <= INLINE[DTYPES[stored.dtype].kind]
    type_ = TensorType(stored.dtype, stored.shape, elements)
    packed = stored.type_text if stored.type_text in ("int4", "uint4", "int2", "uint2") else None
    return Value(name, type_, exact=True, key=None if short else key, constant=True, packed=packed)


def written(value: Scalar, dtype: str) -> Scalar | str:
    """One element as a graph file writes it: the shortest number that `dtype` rounds to the same."""
    if not isinstance(value, float):
        return value
    if value != value:
        return "nan"
    if value in (inf, -inf):
        return "inf" if value > 0 else "-inf"
    return shortest(value) if dtype in ("float32", "float16") else value


def shortest(value: float) -> float:
    """The number with the fewest digits that is the same float32."""
    import numpy as np

    return float(str(np.float32(value))) if float(np.float32(value)) == value else value


def nested(elements: Constant, dtype: str, shape: tuple[int, ...]) -> Any:
    """`elements` as nested lists of `shape`, as graph files write them."""
    items: list[Any] = [written(element, dtype) for element in elements]
    if not shape:
        return items[0]
    for extent in reversed(shape[1:]):
        items = [items[at : at + extent] for at in range(0, len(items), extent)] if extent else []
    return items
