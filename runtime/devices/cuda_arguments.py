"""The parameter block of a launch: packed once, and compared with what the kernel expects before anything runs."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kgrun.graphs.cubin import Parameter
from kgrun.graphs.errors import GraphError
from kgrun.runtime.devices.base import Address
from kgrun.runtime.program import Launch, Pointer, Value

POINTER_BYTES = 8


def layout(args: Sequence[Pointer | Value | None]) -> list[Parameter]:
    """Offset and size of each argument when every one stands at its own alignment, as the CUDA ABI has it."""
    rows, at = [], 0
    for arg in args:
        size, align = (len(arg.data), arg.align) if isinstance(arg, Value) else (POINTER_BYTES, POINTER_BYTES)
        at = -(-at // align) * align
        rows.append(Parameter(at, size))
        at += size
    return rows


def pack(args: Sequence[Pointer | Value | None], address: Address) -> bytes:
    """The parameter block: addresses looked up, values as they are, gaps zero."""
    rows = layout(args)
    block = bytearray(rows[-1].offset + rows[-1].size if rows else 0)
    for arg, row in zip(args, rows, strict=True):
        if isinstance(arg, Value):
            block[row.offset : row.offset + row.size] = arg.data
        else:
            struct.pack_into("<Q", block, row.offset, 0 if arg is None else address(arg))
    return bytes(block)


def check_arguments(launch: Launch, expected: Sequence[Parameter] | None) -> None:
    """Compare a launch's arguments with the kernel's parameters; GraphError KG341 where they differ.

    Sizes and offsets are all that machine code keeps of a signature: `int` and `float` look the same.
    """
    if expected is None:
        return
    entry, given = launch.code.entry, layout(launch.args)
    if len(given) != len(expected):
        raise GraphError(
            f"kernel {entry} takes {len(expected)} arguments, the node gives {len(given)}",
            code="KG341",
            help="`args` lists every parameter in the order of the kernel's signature",
            details={"expected": len(expected), "given": len(given)},
        )
    for index, (got, want) in enumerate(zip(given, expected, strict=True)):
        if got == want:
            continue
        if got.size != want.size:
            problem = f"takes {want.size} bytes, the node gives {_describe(launch.args[index], got.size)}"
        else:
            problem = f"stands at byte {want.offset}, the node's at {got.offset}: their alignments differ"
        raise GraphError(
            f"argument {index} of kernel {entry} {problem}",
            code="KG341",
            help="give the scalar the C type's width, for example {int32: 7} for `int`, {int64: 7} for `long long`",
            details={"argument": index, "expected_bytes": want.size, "given_bytes": got.size},
        )


def _describe(arg: Pointer | Value | None, size: int) -> str:
    return f"a value of {size}" if isinstance(arg, Value) else f"an address of {size}"
