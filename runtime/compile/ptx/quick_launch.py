"""A launch's quick pass: where arguments point, memory for stamps, what to restore where the pass suspects a fault."""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kgrun.runtime.compile.ptx import runtime, workers
from kgrun.runtime.compile.ptx.layout import SlotRecord
from kgrun.runtime.compile.ptx.syntax import align_up

_WHO_BITS = 11
_LAST_TICK = (1 << (32 - _WHO_BITS)) - 2
_CHUNKS = 8  # for each worker: large ones keep workers apart in memory, many keep them equally busy
_MOST_KEPT_BYTES = 1 << 30

_Array = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class BufferInfo:
    """Device memory that a kernel may touch; `initialised` says whether it holds data before the launch."""

    name: str
    address: int
    nbytes: int
    readonly: bool = False
    initialised: bool = True


class _Snapshot:
    """The contents of some buffers, to go back to."""

    def __init__(self, buffers: Sequence[BufferInfo]) -> None:
        self._memory = _take_plain(sum(info.nbytes for info in buffers))
        self._kept = []
        start = 0
        for info in buffers:
            place = self._memory[start : start + info.nbytes]
            np.copyto(place, _view(info))
            self._kept.append((info, place))
            start += info.nbytes

    def restore(self) -> None:
        """Put every byte back."""
        for info, content in self._kept:
            np.copyto(_view(info), content)

    def forget(self) -> None:
        """Give the memory back."""
        with _lock:
            _spare[:] = [self._memory] if self._memory.nbytes <= _MOST_KEPT_BYTES else []


def _view(info: BufferInfo) -> _Array:
    found: _Array = np.ctypeslib.as_array((ctypes.c_uint8 * info.nbytes).from_address(info.address))
    return found


@dataclass
class _Area:
    """A worker's stamps of global memory, and how far its time has come: kept from launch to launch."""

    memory: _Array
    ticks: int = 0


_free: list[_Area] = []
_spare: list[_Array] = []  # of the last snapshot
_lock = threading.Lock()


def _take(nbytes: int) -> _Area:
    with _lock:
        for place, area in enumerate(_free):
            if area.memory.nbytes >= nbytes:
                return _free.pop(place)
        if _free:
            _free.pop(0)  # one that is too small makes room
    return _Area(np.zeros(nbytes, np.uint8))


def _take_plain(nbytes: int) -> _Array:
    """Memory whose pages are there already, where there is any."""
    with _lock:
        if _spare and _spare[0].nbytes >= nbytes:
            return _spare.pop()
    return np.empty(nbytes, np.uint8)


def _give_back(areas: Sequence[_Area]) -> None:
    with _lock:
        for area in areas:
            if sum(each.memory.nbytes for each in _free) + area.memory.nbytes <= _MOST_KEPT_BYTES:
                _free.append(area)


@dataclass
class QuickLaunch:
    """One launch's quick pass.

    Attributes:
        pointers: for each origin of addresses, the address that it has in this launch, and whether the kernel writes
            through it.
        anywhere: whether the kernel writes through other addresses as well.
        shifts: granules of global and of shared memory, as powers of two.
        dynamic_bytes: of dynamic shared memory.
    """

    pointers: Sequence[tuple[int, bool]]
    anywhere: bool
    checks: frozenset[str]
    shifts: tuple[int, int]
    dynamic_bytes: int
    only: int = 0  # 1: looks and runs nothing; 2: runs what was looked at
    _buffers: list[BufferInfo] = field(default_factory=list, init=False)
    _places: dict[int, int] = field(default_factory=dict, init=False)  # row of a buffer to its stamps' byte in an area
    _half: int = field(default=0, init=False)
    _areas: list[_Area] = field(default_factory=list, init=False)
    _firsts: list[Any] = field(default_factory=list, init=False)
    _tables: list[Any] = field(default_factory=list, init=False)

    @property
    def _stamps(self) -> bool:
        return bool(self.checks & {"race", "init"})

    def _row(self, buffers: Sequence[BufferInfo], begins: Sequence[int], address: int) -> int | None:
        """Which of `buffers`, sorted by address, an address is of; its end counts, as for an empty slice."""
        row = bisect_right(begins, address) - 1
        if row < 0 or address > buffers[row].address + buffers[row].nbytes:
            return None
        return row

    def _written(self, buffers: Sequence[BufferInfo]) -> set[int]:
        """Rows of the sorted buffers that the kernel may write, also of those that it should only read."""
        begins = [info.address for info in buffers]
        found = {self._row(buffers, begins, address) for address, written in self.pointers if written}
        rows = {row for row in found if row is not None}
        if self.anywhere:
            rows |= {row for row, info in enumerate(buffers) if not info.readonly}
        return rows

    def to_keep(self, buffers: Sequence[BufferInfo]) -> list[BufferInfo]:
        """The buffers whose data the kernel may overwrite."""
        ordered = sorted(buffers, key=lambda info: info.address)
        written = self._written(ordered)
        return [info for row, info in enumerate(ordered) if row in written and info.initialised and not info.readonly]

    def prepare(self, launch: Any, buffers: Sequence[BufferInfo], count: int, spins: bool) -> None:
        """Fill in the launch's record, and take memory for the stamps of `count` workers."""
        from kgrun.runtime.compile.ptx.layout import BufferRecord

        launch.quick, launch.only = 1, self.only
        launch.shift, launch.shared_shift = self.shifts
        launch.dynamic_bytes = self.dynamic_bytes
        launch.chunk = 1 if spins else max(1, launch.blocks // (count * _CHUNKS))
        self._buffers = sorted(buffers, key=lambda info: info.address)
        if self._stamps and self.only != 2:
            wanted = self._written(self._buffers)
            if "init" in self.checks:
                wanted |= {row for row, info in enumerate(self._buffers) if not info.initialised}
            for row in sorted(wanted):
                self._places[row] = self._half
                self._half = align_up(self._half + (self._buffers[row].nbytes << 2 - self.shifts[0]) + 16, 256)
        rows = (BufferRecord * max(1, len(self._buffers))).from_address(launch.buffers)
        for row, place in self._places.items():
            rows[row].shadow = place + 1
        for _ in range(count):
            area = _take(2 * self._half + 256 if self._half else 0)
            if area.ticks > _LAST_TICK // 4:
                area.memory.fill(0)
                area.ticks = 0
            self._areas.append(area)

    def shared_half(self, shared_bytes: int) -> int:
        """Bytes of the stamps of writers to shared memory."""
        return align_up((shared_bytes << 2 - self.shifts[1]) + 16, 64)

    def fill(self, records: Any, worker: int, shared_bytes: int) -> None:
        """Fill in the records of a worker's blocks."""
        area = self._areas[worker]
        low = (area.ticks + 1) << _WHO_BITS
        base = align_up(area.memory.ctypes.data, 256)
        table, aliased = self._table(base, low)
        self._tables.append(table)
        for record in records:
            record.worker = ctypes.addressof(records[0])
            record.slots = ctypes.addressof(table)
            record.area, record.area_bytes = base, self._half
            record.shared_reads = self.shared_half(shared_bytes)
            record.low, record.aliased = low, aliased
        records[0].ticks = area.ticks + 1
        self._firsts.append(records)

    def _table(self, base: int, low: int) -> tuple[Any, int]:
        """The slots' records, and whether any that is only read has stamps nevertheless."""
        table = (SlotRecord * max(1, len(self.pointers)))()
        begins = [info.address for info in self._buffers]
        aliased = 0
        for slot, (address, written) in zip(table, self.pointers, strict=False):
            row = self._row(self._buffers, begins, address)
            if row is None:
                continue
            info = self._buffers[row]
            slot.begin, slot.bytes, slot.writable = info.address, info.nbytes, 0 if info.readonly else info.nbytes
            slot.floor = low if info.initialised or "init" not in self.checks else 0
            if row in self._places:
                slot.stamps = base + self._places[row]
                aliased |= int(not written)
        return table, aliased

    def workers_meet(self) -> bool:
        """Whether blocks of different workers touched the same memory in a way that nothing may order.

        Gives the memory for stamps back.
        """
        for area, records in zip(self._areas, self._firsts, strict=True):
            area.ticks = records[0].ticks
        met = self._half > 0 and len(self._areas) > 1 and self._merge()
        _give_back(self._areas)
        self._areas = []
        return met

    def _merge(self) -> bool:
        count = len(self._areas)
        areas = (ctypes.c_uint64 * count)(*(records[0].area for records in self._firsts))
        lows = (ctypes.c_uint32 * count)(*(records[0].low for records in self._firsts))
        request = MergeRecord(ctypes.addressof(areas), ctypes.addressof(lows), self._half, count, 0)
        merge = runtime.merger()
        words = self._half // 4
        share = align_up(-(-words // count), 1024)
        address = ctypes.addressof(request)
        parts = [(start, min(share, words - start)) for start in range(0, words, share)]
        running = [workers.submit(merge, address, start, some) for start, some in parts]
        wait(running)
        for future in running:
            future.result()
        return bool(request.found)


def run_quick(launch: Any, quick: QuickLaunch, buffers: Sequence[BufferInfo], *, whole: bool) -> Any:
    """The quick pass: what `launch(quick=…)` answers, or None where it suspects a fault; memory is as before then.

    Where the `whole` kernel can be looked at beforehand, no byte of it need be kept.
    """
    if whole:
        result = launch(quick=replace(quick, only=1))
        if not result.unsure:
            return None if result.suspect else launch(quick=replace(quick, only=2))
    snapshot = _Snapshot(quick.to_keep(buffers))
    try:
        result = launch(quick=quick)
        if result.suspect:
            snapshot.restore()
    finally:
        snapshot.forget()
    return None if result.suspect else result


class MergeRecord(ctypes.Structure):
    """`Merge` of quick.cu."""

    _fields_ = (
        ("areas", ctypes.c_uint64),
        ("lows", ctypes.c_uint64),
        ("distance", ctypes.c_uint64),
        ("workers", ctypes.c_uint32),
        ("found", ctypes.c_uint32),
    )
