"""One launch: working memory for each worker, the launch record, threads, and what came of it."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from math import gcd
from typing import Any

import numpy as np

from kgrun.graphs.errors import TimeoutExpired, UsageError
from kgrun.runtime.compile.ptx import heap, printf, runtime, workers
from kgrun.runtime.compile.ptx.layout import BlockRecord, BufferRecord, FaultRecord, LaunchRecord
from kgrun.runtime.compile.ptx.quick_launch import BufferInfo, QuickLaunch
from kgrun.runtime.compile.ptx.syntax import align_up
from kgrun.runtime.compile.ptx.waits import MAIL_WORDS

__all__ = ["BufferInfo", "Dim3", "Geometry", "RawResult", "run"]

Dim3 = tuple[int, int, int]
Progress = Callable[[float, float], None]  # (fraction of the blocks begun, seconds so far)
CHECK_BITS = {"bounds": 1, "race": 2, "init": 4, "barrier": 8}
SHADOW_BYTES = 64  # for each 4 bytes
_FAULT_CAPACITY = 256
_GRID_BARRIER_BYTES = 64
_SPIN_SLOTS = 64  # blocks of one worker in flight where blocks may wait for each other
_STOP_PATIENCE_S = 1.0
_LOOK_S = 1.0

_Array = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Geometry:
    """What a launch needs to know of the compiled kernel."""

    region: int
    step: int
    kinds: Sequence[int]
    lines: Sequence[int]
    frame_bytes: int
    local_bytes: int
    shared_ranges: Sequence[tuple[int, int]]
    shared_static: int
    waits: bool
    spins: bool
    looped: bool
    module_address: int
    matrix: int


@dataclass
class RawResult:
    """Fault records as they were written, and the text that the kernel printed."""

    faults: list[Any]
    text: str
    grid: Dim3
    block: Dim3
    shared_addresses: list[int] = field(default_factory=list)
    suspect: bool = False  # of a quick pass: there may be a fault
    unsure: bool = False  # of one that only looked: that did not say enough


def _zeros(nbytes: int) -> tuple[_Array, int]:
    """(array that owns the memory, address aligned to 256); untouched pages cost nothing."""
    array = np.zeros(nbytes + 256, np.uint8)
    return array, align_up(array.ctypes.data, 256)


def run(
    geometry: Geometry,
    grid: Dim3,
    block: Dim3,
    shared_bytes: int,
    args: bytes,
    buffers: Sequence[BufferInfo],
    *,
    checks: frozenset[str],
    schedule: str,
    threads: int | None,
    timeout_s: float | None,
    on_progress: Progress | None = None,
    cooperative: bool = False,
    quick: QuickLaunch | None = None,
) -> RawResult:
    """Launch and wait; with `quick`, only to find out whether there may be a fault.

    Raises `UsageError` for an impossible launch and `TimeoutExpired`.
    """
    blocks = grid[0] * grid[1] * grid[2]
    if min(*grid, *block) < 1 or block[0] * block[1] * block[2] > 1024:
        raise UsageError(f"a grid of {grid} blocks of {block} threads cannot be launched", code="KG200")
    keep: list[Any] = []
    launch = LaunchRecord()
    _fill_launch(launch, geometry, grid, block, shared_bytes, args, keep)
    if cooperative:
        launch.grid_barrier = _keep_bytes(bytes(_GRID_BARRIER_BYTES), keep)
        buffers = [*buffers, BufferInfo("the grid's barrier", launch.grid_barrier, _GRID_BARRIER_BYTES)]
    _fill_checks(launch, geometry, buffers, checks, blocks, keep, quick is not None)
    _fill_schedule(launch, schedule, blocks)
    printed = printf.Collector()
    keep.append(printed)
    launch.print = printed.address
    launch.heap = heap.heap() if checks and quick is None else 0
    count = 1 if (checks and quick is None) or schedule != "forward" else min(threads or os.cpu_count() or 1, blocks)
    slots = -(-blocks // count) if cooperative else min(blocks, _SPIN_SLOTS) if geometry.spins else 1
    launch.workers = count
    launch.chunk = 1
    work = []
    if quick is not None:
        quick.prepare(launch, buffers, count, geometry.spins)
    for worker in range(count):
        records, addresses = _work_area(launch, geometry, slots, checks, worker, keep, quick)
        work.append((ctypes.addressof(records), addresses))
    watch = _Watch(launch, blocks, timeout_s, on_progress)
    _run_workers(watch, [address for address, _ in work], slots, keep)
    unsure = bool(launch.unsure)
    suspect = bool(launch.suspect or (quick is not None and (launch.fault_count or quick.workers_meet())))
    faults = (FaultRecord * _FAULT_CAPACITY).from_address(launch.faults)
    found = [FaultRecord.from_buffer_copy(faults[number]) for number in range(launch.fault_count)]
    return RawResult(
        found, printed.text(), grid, block, [a for _, addresses in work for a in addresses], suspect, unsure
    )


def _fill_launch(
    launch: Any, geometry: Geometry, grid: Dim3, block: Dim3, shared_bytes: int, args: bytes, keep: list[Any]
) -> None:
    launch.grid_x, launch.grid_y, launch.grid_z = grid
    launch.block_x, launch.block_y, launch.block_z = block
    launch.threads = block[0] * block[1] * block[2]
    launch.warps = (launch.threads + 31) // 32
    launch.blocks = grid[0] * grid[1] * grid[2]
    launch.params = _keep_bytes(args.ljust(8, b"\0"), keep)
    launch.region, launch.step = geometry.region, geometry.step
    launch.module = geometry.module_address
    launch.matrix = geometry.matrix
    launch.kinds = _keep_bytes(np.array(geometry.kinds, np.uint32).tobytes(), keep)
    launch.lines = _keep_bytes(np.array(geometry.lines, np.uint32).tobytes(), keep)
    launch.shared_bytes, launch.shared_static = shared_bytes, geometry.shared_static
    launch.waits, launch.looped = int(geometry.waits), int(geometry.looped)
    launch.local_bytes, launch.frame_bytes = geometry.local_bytes, geometry.frame_bytes


def _fill_checks(
    launch: Any,
    geometry: Geometry,
    buffers: Sequence[BufferInfo],
    checks: frozenset[str],
    blocks: int,
    keep: list[Any],
    quick: bool,
) -> None:
    faults, launch.faults = _zeros(ctypes.sizeof(FaultRecord) * _FAULT_CAPACITY)
    keep.append(faults)
    launch.fault_capacity = _FAULT_CAPACITY
    launch.checks = sum(CHECK_BITS[name] for name in checks)
    if not checks:
        return
    ranges = [*geometry.shared_ranges]
    launch.shared_ranges = _keep_bytes(np.array(ranges, np.uint32).tobytes() or bytes(8), keep)
    launch.shared_range_count = len(ranges)
    launch.releases = _keep_bytes(bytes(4 * blocks), keep)
    shadowed = bool(checks & {"race", "init"}) and not quick
    rows = (BufferRecord * max(1, len(buffers)))()
    keep.append(rows)
    order = sorted(range(len(buffers)), key=lambda number: buffers[number].address)
    for row, number in zip(rows, order, strict=False):
        info = buffers[number]
        row.begin, row.end, row.index = info.address, info.address + info.nbytes, number
        row.flags = int(info.readonly) | (0 if info.initialised else 2)
        if shadowed and not (info.readonly and info.initialised):
            memory, row.shadow = _zeros(SHADOW_BYTES * ((info.nbytes + 3) // 4))
            keep.append(memory)
    launch.buffers, launch.buffer_count = ctypes.addressof(rows), len(buffers)


def _fill_schedule(launch: Any, schedule: str, blocks: int) -> None:
    launch.block_stride, launch.block_first = 1, 0
    if schedule == "forward":
        return
    if schedule == "reverse":
        launch.schedule = 1
        launch.block_stride = launch.block_first = blocks - 1 if blocks > 1 else 0
        return
    name, _, seed = schedule.partition(":")
    if name != "random" or not seed.isdecimal():
        raise UsageError(f"unknown schedule {schedule!r}", code="KG211", help="forward, reverse or random:SEED")
    launch.schedule, launch.seed = 2, int(seed)
    stride = 1 + (int(seed) * 2654435761) % blocks
    while gcd(stride, blocks) != 1:
        stride += 1
    launch.block_stride, launch.block_first = stride, int(seed) * 40503 % blocks


def _work_area(
    launch: Any,
    geometry: Geometry,
    slots: int,
    checks: frozenset[str],
    worker: int,
    keep: list[Any],
    quick: QuickLaunch | None,
) -> tuple[Any, list[int]]:
    """`slots` block records with memory behind them."""
    threads, warps = int(launch.threads), int(launch.warps)
    shared = int(launch.shared_bytes)
    shadow = SHADOW_BYTES * (align_up(shared, 4) // 4) if checks & {"race", "init"} else 0
    if quick is not None:
        shadow = 2 * quick.shared_half(shared)
    waits = geometry.waits
    sizes = {
        "shared": shared + 256,
        "frames": geometry.frame_bytes * threads if waits else 0,
        "local": geometry.local_bytes * threads,
        "pend": 4 * threads,
        "mail": 4 * MAIL_WORDS * threads if waits else 0,
        "ready": 4 * warps,
        "alive": 4 * warps,
        "uniform": 4 * warps,
        "warp_epochs": 4 * warps,
        "warp_lows": 4 * warps if quick is not None else 0,
        "arrivals": 64,
        "order": 4 * max(threads, 32),
        "shadow": shadow,
        "sink": 64,
        "synced": 8 * threads,
    }
    records = (BlockRecord * slots)()
    keep.append(records)
    addresses = []
    for slot, record in enumerate(records):
        memory, address = _zeros(sum(align_up(size, 256) for size in sizes.values()))
        keep.append(memory)
        for name, size in sizes.items():
            setattr(record, name, address)
            address += align_up(size, 256)
        record.random = int(launch.seed) * 1_000_003 + worker * 64 + slot
        addresses.append(record.shared)
    if quick is not None:
        quick.fill(records, worker, shared)
    return records, addresses


_abandoned: list[Any] = []


@dataclass
class _Watch:
    """Looks at a running launch about once a second: its time limit, and how far it is."""

    launch: Any
    blocks: int
    timeout_s: float | None
    on_progress: Progress | None
    started: float = field(default_factory=time.monotonic)

    def wait_s(self) -> float | None:
        """How long to wait until the next look; None: until the end."""
        left = None if self.timeout_s is None else max(0.0, self.timeout_s - (time.monotonic() - self.started))
        if self.on_progress is None:
            return left
        return _LOOK_S if left is None else min(_LOOK_S, left)

    def expired(self) -> bool:
        """Whether the time limit is over; tells the progress on the way."""
        elapsed = time.monotonic() - self.started
        if self.on_progress is not None:
            self.on_progress(min(1.0, self.launch.next_block / self.blocks), elapsed)
        return self.timeout_s is not None and elapsed >= self.timeout_s


def _run_workers(watch: _Watch, work: list[int], slots: int, keep: list[Any]) -> None:
    run_blocks = runtime.worker()
    launch = watch.launch
    record = ctypes.addressof(launch)
    running = {workers.submit(run_blocks, record, address, slots) for address in work}
    futures = list(running)
    try:
        while running:
            running = wait(running, timeout=watch.wait_s()).not_done
            if running and watch.expired():
                break
    except BaseException:  # Ctrl-C: the workers stop at their next block or wait
        launch.stop = 1
        wait(futures, timeout=_STOP_PATIENCE_S)
        _abandoned.append((launch, keep))
        raise
    if running:
        launch.stop = 1
        if wait(running, timeout=_STOP_PATIENCE_S).not_done:
            _abandoned.append((launch, keep))  # a thread still runs on this memory: it must stay
        raise TimeoutExpired(f"a kernel ran longer than {watch.timeout_s:g} s on the CPU", code="KG901")
    for future in futures:
        future.result()


def _keep_bytes(data: bytes, keep: list[Any]) -> int:
    array, address = _zeros(len(data))
    keep.append(array)
    ctypes.memmove(address, data, len(data))
    return address
