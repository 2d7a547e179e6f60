"""The kernels that move rows of one table, packed once: counts, slots and row numbers are read from memory."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path

from kgrun.graphs.bound import BoundTable
from kgrun.graphs.dtypes import itemsize
from kgrun.runtime.program import KernelCode, Launch, Pointer, Step, Value

# Each takes half an SM from the run beside it, and has 16 KiB of rows of 512 bytes on their way over the bus.
_EXCHANGING = 4
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
    pointers = (Pointer(0, address) for address in addresses)
    return _launch(table, entry, (*pointers, _number(row_bytes(table) // _unit(table))), blocks)


def exchange_step(
    table: BoundTable, cache: int, home: int, block: Mapping[str, int], ids: int, words: int, rows: int, most: int
) -> Step:
    """A launch of kg_rows_exchange.

    Args:
        cache, home: addresses of the cached rows, and of the whole table.
        block: addresses of a lookup's parts.
        ids: where the indices go; `words`, how many times four bytes they are, 0 for none.
        rows: of the cache.
        most: numbers that a lookup has room for.
    """
    parts = (block[name] for name in ("counts", "missing", "used", "evicted", "found"))
    pointers = (Pointer(0, address) for address in (cache, home, *parts, ids))
    numbers = (row_bytes(table) // _unit(table), rows, int(table.updated), words, most)
    blocks = min(_EXCHANGING, -(-min(most, rows) // 32))
    return _launch(table, "kg_rows_exchange", (*pointers, *map(_number, numbers)), blocks, 1_024)


def _launch(table: BoundTable, entry: str, args: tuple[Pointer | Value, ...], blocks: int, threads: int = 256) -> Step:
    source = Path(__file__).with_name("rows.cu").read_text("utf-8")
    source = source.replace("UNIT unit", f"{_UNITS[_unit(table)]} unit")
    code = KernelCode(source, None, "cuda", f"kgrun:{entry}.cu", entry)
    work = Launch(code, args, (blocks, 1, 1), (threads, 1, 1))
    return Step(0, f"{table.name}.{entry.removeprefix('kg_')}", 0, entry, "compute", work, (), ())


def _unit(table: BoundTable) -> int:
    return next(size for size in _UNITS if row_bytes(table) % size == 0)


def _number(value: int) -> Value:
    return Value(value.to_bytes(4, "little"), 4)


def fixed(pointer: Pointer) -> int:
    """The address of a pointer of `move_step`."""
    return pointer.offset
