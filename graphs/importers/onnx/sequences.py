"""Sequences and optional values: lists of tensors whose lengths are known while a model is imported.

They vanish: what is left are the tensors in them. A sequence whose length only the run tells cannot be imported.
"""

from __future__ import annotations

from collections.abc import Sequence

from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value

Results = Sequence[Value | list[Value] | None]

# A longer sequence would make a graph that nobody reads.
MAX_LENGTH = 1_024


def _items(use: Use, index: int = 0) -> list[Value]:
    found = use.inputs[index] if index < len(use.inputs) else None
    if not isinstance(found, list):
        raise Unsupported(f"input {index} is no sequence", code="KG330")
    return found


def _position(use: Use, index: int, length: int, default: int) -> int:
    """The place that input `index` names, counted from the front; `length` itself is one where things are added."""
    if use.input(index) is None:
        return default
    known = use.known(index)
    if known is None:
        raise Unsupported("a place in a sequence that only the run tells")
    place = int(known[0]) + (length if known[0] < 0 else 0)
    if not 0 <= place <= length:
        raise Unsupported(f"place {known[0]} of a sequence of {length}", code="KG330")
    return place


def construct(use: Use) -> Results:
    """SequenceConstruct."""
    return [[use.needed(index) for index in range(len(use.inputs))]]


def empty(use: Use) -> Results:
    """SequenceEmpty."""
    return [[]]


def at(use: Use) -> Results:
    """SequenceAt."""
    items = _items(use)
    place = _position(use, 1, len(items), 0)
    if place == len(items):
        raise Unsupported(f"place {place} of a sequence of {len(items)}", code="KG330")
    return [items[place]]


def insert(use: Use) -> Results:
    """SequenceInsert: at the end unless a place is given."""
    items = _items(use)
    place = _position(use, 2, len(items), len(items))
    return [[*items[:place], use.needed(1), *items[place:]]]


def erase(use: Use) -> Results:
    """SequenceErase: the last one unless a place is given."""
    items = _items(use)
    place = _position(use, 1, len(items), len(items) - 1)
    return [[*items[:place], *items[place + 1 :]]]


def length(use: Use) -> Results:
    """SequenceLength."""
    return [use.scalar(len(_items(use)))]


def concat(use: Use) -> Results:
    """ConcatFromSequence."""
    items, axis = _items(use), use.attributes["axis"]
    if use.attributes.get("new_axis", 0):
        items = [use.part("Unsqueeze", [item, use.ints([axis])]) for item in items]
    return use.result(items, {"axis": axis}, "Concat")


def split(use: Use) -> Results:
    """SplitToSequence: by sizes, by one size for all, or one by one."""
    x, axis = use.needed(0), use.attributes.get("axis", 0)
    if x.shape is None:
        raise Unsupported("a sequence whose length depends on a dimension that is not bound")
    whole, given = x.shape[axis], use.input(1)
    sizes = [1] * whole
    if given is not None:
        known = use.known(1)
        if known is None:
            raise Unsupported("sizes that only the run tells")
        sizes = [int(size) for size in known]
        if given.rank == 0:
            each = max(sizes[0], 1)
            sizes = [min(each, whole - start) for start in range(0, whole, each)]
    if not 0 < len(sizes) <= MAX_LENGTH:
        raise Unsupported(f"a sequence of {len(sizes)} tensors")
    parts = use.emitter.op("Split", [x, use.ints(sizes)], {"axis": axis}, len(sizes), use.name)
    if given is None and not use.attributes.get("keepdims", 1):
        parts = [use.part("Squeeze", [part, use.ints([axis])]) for part in parts]
    return [list(parts)]


def optional(use: Use) -> Results:
    """Optional and OptionalGetElement: the value itself."""
    if not use.inputs or use.inputs[0] is None:
        if use.op == "Optional":
            return [None]
        raise Unsupported("an optional value that is absent", code="KG330")
    return [use.inputs[0]]


def has_element(use: Use) -> Results:
    """OptionalHasElement."""
    return [use.constant("bool", (), (bool(use.inputs) and use.inputs[0] is not None,))]


SEQUENCES = {
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceAt": at,
    "SequenceInsert": insert,
    "SequenceErase": erase,
    "SequenceLength": length,
    "ConcatFromSequence": concat,
    "SplitToSequence": split,
    "Optional": optional,
    "OptionalGetElement": optional,
    "OptionalHasElement": has_element,
}
