"""The kernels that move rows of one table, packed once: counts, slots and row numbers are read from memory."""

from __future__ import annotations

from math import prod
from pathlib import Path

from kgrun.graphs.bound import BoundTable
from kgrun.graphs.dtypes import itemsize
from kgrun.runtime.program import KernelCode, Launch, Pointer, Step, Value

_UNITS = {16: "uint4", 8: "unsigned long long", 4: "unsigned int", 2: "unsigned short", 1: "unsigned char"}


def row_bytes(table: BoundTable) -> int:
    """Bytes of a row."""
    return prod(table.shape[1:]) * itemsize(table.dtype)


def move_step(table: BoundTable, entry: str, addresses: tuple[int, int, int, int], blocks: int) -> Step:
    """A launch of kernel `entry` of rows.cu.

    Args:
        addresses: the rows that are numbered, the block, the numbers, their count.
        blocks: of 256 threads; few for a kernel beside others that waits for the bus.
    """
    nbytes = row_bytes(table)
    unit = next(size for size in _UNITS if nbytes % size == 0)
    source = Path(__file__).with_name("rows.cu").read_text("utf-8").replace("UNIT unit", f"{_UNITS[unit]} unit")
    code = KernelCode(source, None, "cuda", f"kgrun:{entry}.cu", entry)
    pointers = (Pointer(0, address) for address in addresses)
    work = Launch(code, (*pointers, Value((nbytes // unit).to_bytes(4, "little"), 4)), (blocks, 1, 1), (256, 1, 1))
    return Step(0, f"{table.name}.{entry.removeprefix('kg_')}", 0, entry, "compute", work, (), ())


def fixed(pointer: Pointer) -> int:
    """The address of a pointer of `move_step`."""
    return pointer.offset
