"""Rearrangement: blocks moved between depth and space, sequences reversed, triangles and centres kept."""

from __future__ import annotations

from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import Shape, counted_axes, like, needs_dtype

_INDEX = ("int32", "int64")


def block_layout(call: OpCall) -> tuple[Shape, Shape]:
    """DepthToSpace and SpaceToDepth: input 0 in six axes, and how they are permuted to give the output."""
    batch, depth, height, width = call.input(0).shape
    size, columns_first = call.attributes["blocksize"], call.attributes["mode"] == "CRD"
    if call.op == "DepthToSpace":
        rest = depth // (size * size)
        if columns_first:
            return (batch, rest, size, size, height, width), (0, 1, 4, 2, 5, 3)
        return (batch, size, size, rest, height, width), (0, 3, 4, 1, 5, 2)
    split = (batch, depth, height // size, size, width // size, size)
    return split, (0, 1, 3, 5, 2, 4) if columns_first else (0, 3, 5, 1, 2, 4)


def _blocks(call: OpCall) -> list[TensorType]:
    source, size = call.input(0), call.attributes["blocksize"]
    if len(source.shape) != 4:
        call.fail(f"{call.op} takes [batch, channels, height, width], got {list(source.shape)}", "inputs", 0)
    batch, depth, height, width = source.shape
    if size < 1:
        call.fail(f"{call.op}: blocks of {size}", "attributes", "blocksize")
    if call.op == "DepthToSpace":
        if depth % (size * size):
            call.fail(f"DepthToSpace: {depth} channels are no multiple of {size * size}", "inputs", 0)
        return [like(source, (batch, depth // (size * size), height * size, width * size))]
    if height % size or width % size:
        call.fail(f"SpaceToDepth: {height}×{width} is no multiple of {size}", "inputs", 0)
    return [like(source, (batch, depth * size * size, height // size, width // size))]


def centre_amounts(call: OpCall) -> tuple[tuple[int, int], ...]:
    """CenterCropPad's elements to add before and after on every axis; negative ones crop."""
    shape, wanted = call.input(0).shape, call.ints(1) or ()
    axes = counted_axes(call, call.attributes.get("axes", range(len(shape))), len(shape), 2)
    amounts = [(0, 0)] * len(shape)
    for axis, size in zip(axes, wanted, strict=True):
        more = size - shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        amounts[axis] = (before, more - before)
    return tuple(amounts)


def _center_crop_pad(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, _INDEX)
    source, wanted = call.input(0), call.ints(1) or ()
    axes = call.attributes.get("axes", range(len(source.shape)))
    if len(wanted) != len(axes) or min(wanted, default=0) < 0:
        call.fail(f"CenterCropPad: sizes {list(wanted)} for {len(axes)} axes", "inputs", 1)
    sizes = zip(source.shape, centre_amounts(call), strict=True)
    return [like(source, tuple(size + before + after for size, (before, after) in sizes))]


def _reverse_sequence(call: OpCall) -> list[TensorType]:
    source, lengths = call.input(0), call.input(1)
    needs_dtype(call, 1, ("int64",))
    batch, time = call.attributes["batch_axis"], call.attributes["time_axis"]
    if len(source.shape) < 2 or sorted((batch, time)) != [0, 1]:
        call.fail(f"ReverseSequence: batch axis {batch} and time axis {time} of {list(source.shape)}", "attributes")
    if lengths.shape != (source.shape[batch],):
        call.fail(f"ReverseSequence: lengths {list(lengths.shape)} for {source.shape[batch]} sequences", "inputs", 1)
    return [like(source)]


def diagonal(call: OpCall) -> int:
    """The diagonal that Trilu keeps up to, or from."""
    found = call.ints(1)
    if found is not None and len(found) != 1:
        call.fail("Trilu: k is one number", "inputs", 1)
    return found[0] if found else 0


def _trilu(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, ("int64",))
    if len(call.input(0).shape) < 2:
        call.fail(f"Trilu takes matrices, got {list(call.input(0).shape)}", "inputs", 0)
    diagonal(call)
    return [like(call.input(0))]


_BLOCKS = {"blocksize": Attribute("int", required=True), "mode": Attribute("string", "DCR", choices=("DCR", "CRD"))}
register(
    OpSchema("DepthToSpace", "rearrangement", (1, 1), _blocks, attributes=_BLOCKS),
    OpSchema("SpaceToDepth", "rearrangement", (1, 1), _blocks, attributes=_BLOCKS),
    OpSchema(
        "CenterCropPad",
        "rearrangement",
        (2, 2),
        _center_crop_pad,
        attributes={"axes": Attribute("ints")},
        host_inputs=frozenset({1}),
    ),
    OpSchema(
        "ReverseSequence",
        "rearrangement",
        (2, 2),
        _reverse_sequence,
        attributes={"batch_axis": Attribute("int", 1), "time_axis": Attribute("int", 0)},
    ),
    OpSchema(
        "Trilu",
        "rearrangement",
        (1, 2),
        _trilu,
        attributes={"upper": Attribute("int", 1)},
        host_inputs=frozenset({1}),
        inplace=(0,),
    ),
)
