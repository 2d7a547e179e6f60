"""Weights of 2, 4 or 8 bits with a scale for each block: MatMulNBits and GatherBlockQuantized."""

from __future__ import annotations

from kgrun.graphs.importers.onnx.contrib.parts import Contrib, Results, dtype_of, refuse, refuse_inputs, unsqueezed
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value


def _matmul(use: Use) -> Results:
    """A product with a matrix [N, K] whose rows lie in blocks; the last block may reach past K."""
    refuse(use, weight_prepacked=0)
    refuse_inputs(use, g_idx=4)
    a, bits, block = use.needed(0), use.attributes.get("bits", 4), use.attributes["block_size"]
    rows, size = use.attributes["N"], use.attributes["K"]
    blocks = -(-size // block)
    packed = use.part("Reshape", [use.needed(1), use.ints([rows, -1])])
    weights = use.part("Reshape", [_unpacked(use, packed, bits), use.ints([rows, blocks, block])])
    scale = use.part("Reshape", [use.needed(2), use.ints([rows, blocks, 1])])
    zero = use.input(3)
    if zero is not None:
        zero = use.part("Reshape", [zero, use.ints([rows, -1])])
        if dtype_of(zero) == "uint8":
            zero = _unpacked(use, zero, bits)
            zero = use.part("Slice", [zero, use.ints([0]), use.ints([blocks]), use.ints([1])])
        zero = unsqueezed(use, zero, 2)
    whole = use.part("Reshape", [_scaled(use, weights, scale, zero, bits), use.ints([rows, blocks * block])])
    if blocks * block != size:
        whole = use.part("Slice", [whole, use.ints([0]), use.ints([size]), use.ints([1])])
    factors = [a, use.part("Transpose", [whole], perm=[1, 0])]
    bias = use.input(5)
    if bias is None:
        return use.result(factors, {}, "MatMul")
    return use.result([use.part("MatMul", factors), bias], {}, "Add")


def _gather(use: Use) -> Results:
    """Rows of a table whose last axis lies in blocks, scaled once they are gathered."""
    data, indices = use.needed(0), use.needed(1)
    bits, block = use.attributes.get("bits", 4), use.attributes.get("block_size", 128)
    if dtype_of(data) != "uint8" or data.shape is None:
        raise Unsupported(f"a table of {dtype_of(data)}, or of a size that is not known")
    rank, size = len(data.shape), data.shape[-1] * (8 // bits)
    if use.attributes.get("quantize_axis", 1) not in (rank - 1, -1) or use.attributes.get("gather_axis", 0):
        raise Unsupported("other axes than rows gathered and blocks along the last axis")
    if size % block:
        raise Unsupported(f"rows of {size} elements in blocks of {block}")
    picked = [None if each is None else use.part("Gather", [each, indices]) for each in (data, use.input(2))]
    zero, blocks = use.input(3), size // block
    lead = [0] * ((indices.rank if indices.rank is not None else _unknown()) + rank - 2)
    rows, scale = picked
    assert rows is not None
    assert scale is not None
    values = use.part("Reshape", [_unpacked(use, rows, bits), use.ints([*lead, blocks, block])])
    last = len(lead) + 1
    if zero is not None:
        zero = _unpacked(use, use.part("Gather", [zero, indices]), bits)
        zero = use.part("Slice", [zero, use.ints([0]), use.ints([blocks]), use.ints([last - 1])])
        zero = unsqueezed(use, zero, last)
    made = _scaled(use, values, unsqueezed(use, scale, last), zero, bits)
    return use.result([made, use.ints([*lead, size])], {}, "Reshape")


def _unknown() -> int:
    raise Unsupported("the rank of its indices is not known")


def _unpacked(use: Use, packed: Value, bits: int) -> Value:
    """The numbers of `bits` bits that bytes hold, low ones first, in place of the last axis."""
    if bits == 8:
        return packed
    if bits not in (2, 4):
        raise Unsupported(f"{bits} bits")
    rank = packed.rank
    assert rank is not None
    mask = use.constant("uint8", (), (2**bits - 1,))
    found = []
    for shift in range(0, 8, bits):
        by = use.constant("uint8", (), (shift,))
        part = use.part("BitShift", [packed, by], direction="RIGHT") if shift else packed
        found.append(unsqueezed(use, use.part("BitwiseAnd", [part, mask]), rank))
    together = use.part("Concat", found, axis=-1)
    return use.part("Reshape", [together, use.ints([*[0] * (rank - 1), -1])])


def _scaled(use: Use, values: Value, scale: Value, zero: Value | None, bits: int) -> Value:
    """(values - zero) · scale in the scale's type; zero is the middle of the range where there is none."""
    dtype = dtype_of(scale)
    if zero is None:
        zero = use.constant(dtype, (), (float(2 ** (bits - 1)),))
    elif dtype_of(zero) != dtype:
        zero = use.part("Cast", [zero], to=dtype)
    return use.part("Mul", [use.part("Sub", [use.part("Cast", [values], to=dtype), zero]), scale])


BLOCKS: dict[str, Contrib] = {"MatMulNBits": _matmul, "GatherBlockQuantized": _gather}
