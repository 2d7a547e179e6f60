"""Masks of ONNX Runtime's attention operators as what is added to the products of queries and keys."""

from __future__ import annotations

from kgrun.graphs.importers.onnx.contrib.parts import count, like, unsqueezed
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value

_FILTERED = -10_000.0  # ONNX Runtime's mask_filter_value, where none is given


def added_mask(use: Use, mask: Value, floats: Value, batch: Value, keys: Value) -> Value:
    """A mask of any form as floats [batch, 1, queries or 1, keys]: 0, or mask_filter_value where a key is masked.

    Args:
        mask: int32 [batch, keys] or [batch, queries, keys], above 0 where a key counts; [batch], where its keys end;
            [2 · batch], where they end, then where they start.
        floats: a tensor of the type that is wanted.
        batch: a tensor whose first axis is the batch.
        keys: how many keys there are.
    """
    if mask.rank not in (1, 2, 3):
        raise Unsupported(f"a mask of {'unknown rank' if mask.rank is None else f'{mask.rank} axes'}")
    if mask.rank == 1:
        shown = unsqueezed(use, _within(use, mask, batch, keys), 1, 2)
    else:
        shown = use.part("Greater", [mask, use.constant("int32", (), (0,))])
        shown = unsqueezed(use, shown, *((1, 2) if mask.rank == 2 else (1,)))
    filtered = use.attributes.get("mask_filter_value", _FILTERED)
    return use.part("Where", [shown, like(use, floats, 0.0), like(use, floats, filtered)])


def _within(use: Use, ends: Value, batch: Value, keys: Value) -> Value:
    """Whether each key [batch, keys] lies before the sequence's end, and not before its start where that is given."""
    if ends.type is None or batch.type is None:
        raise Unsupported("the batch is not known")
    each, sequences = ends.type.shape[0], batch.type.shape[0]
    places = use.part("Cast", [count(use, keys)], to="int32")
    if each == sequences:
        return use.part("Less", [places, unsqueezed(use, ends, 1)])
    if each != 2 * sequences:
        raise Unsupported(f"a mask of {each} numbers for {sequences} sequences")
    last, first = use.parts("Split", [ends], 2, axis=0, num_outputs=2)
    before = use.part("Less", [places, unsqueezed(use, last, 1)])
    after = use.part("GreaterOrEqual", [places, unsqueezed(use, first, 1)])
    return use.part("And", [before, after])
