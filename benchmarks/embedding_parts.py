"""Where a step of embedding.py's goes: the stages of the host, a lookup by itself, the kernel that moves rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from kgrun.runtime import Session
from kgrun.runtime.devices.base import Device

Array = np.ndarray[Any, Any]


def parts_of(report: Any) -> str:
    """Milliseconds of the parts of a step: on the device, on the host beside it, and between runs."""
    queue = report.queues[0]
    parts = {"run (median)": report.total.median * queue.batches}
    for found in report.embeddings:
        parts["look up"] = found.lookup_ns
        parts["have rows moved"] = found.prepare_ns - found.lookup_ns
        parts["place ids"] = found.place_ns
    parts |= {"wait for ids": queue.waited_ns, "feeder fills": queue.filled_ns, "feeder has no room": queue.full_ns}
    return ", ".join(f"{name} {ns / queue.batches / 1e6:.4f} ms" for name, ns in parts.items())


def show_stages(session: Session, device: Device, steps: int) -> None:
    """Print what each stage of the host takes in each thread; watching costs about a microsecond a call."""
    from stages import Stages

    from kgrun.runtime.embedding.cache import EmbeddingCache
    from kgrun.runtime.embedding.direct_rows import DirectRows
    from kgrun.runtime.embedding.index import RowIndex
    from kgrun.runtime.embedding.lane_rows import LaneRows
    from kgrun.runtime.embedding.rows import HostRows
    from kgrun.runtime.measure import Runner
    from kgrun.runtime.queues.feed import GraphFeed
    from kgrun.runtime.queues.ring import Ring
    from kgrun.runtime.queues.slots import HostSlots, LaneSlots

    def depths(feed: Any) -> dict[str, int]:
        (fed,) = feed._fed
        looked_up = sum(cache.looked_up for cache in fed.caches.values())
        return {"batches in the queue": fed.ring.pushed - fed.ring.popped, "of them looked up": looked_up}

    with Stages() as stages:
        stages.watch(GraphFeed, "next", "next batch in place", depths)
        stages.watch(GraphFeed, "ahead", "while the run goes on")
        for owner in {type(device), Device} - {Device}:
            stages.watch(owner, "record", "mark on the device")
            stages.watch(owner, "elapsed_ns", "wait for the run's end")
        stages.watch(Runner, "issue", "issue the run")
        stages.watch(Ring, "front", "front of the queue")
        stages.watch(Ring, "pop", "pop")
        stages.watch(Ring, "push", "push, waiting for room")
        stages.watch(EmbeddingCache, "place", "place")
        stages.watch(EmbeddingCache, "look_ahead", "look ahead, with waits")
        stages.watch(EmbeddingCache, "_have_next", "wait for a lookup, or make it")
        stages.watch(EmbeddingCache, "_move", "have rows moved")
        stages.watch(RowIndex, "lookup", "look up")
        for rows in (HostRows, LaneRows, DirectRows):
            stages.watch(rows, "block", "wait for a free block")
        for slots in (HostSlots, LaneSlots):
            stages.watch(slots, "fill", "fill a slot")
            stages.watch(slots, "take", "take a slot")
        session.run(iterations=max(steps // 10, 1), warmup=0, per_step=False)
        stages.clear()
        started = time.perf_counter()
        report = session.run(iterations=steps, warmup=0, per_step=False)
        wall = (time.perf_counter() - started) / steps
        print(*stages.lines(steps), sep="\n")
    on_device = np.array(report.total_samples) / 1e3
    moved = sum(found.ahead for found in report.embeddings)
    print(
        f"  a step {wall * 1e6:.1f} us while watched; of it on the device, from issue to end: "
        f"median {np.median(on_device):.1f} us, p95 {np.percentile(on_device, 95):.1f} us; "
        f"rows moved ahead for {moved:,} of {steps:,}\n  {parts_of(report)}"
    )


def show_lookups(ids: Array, vocabulary: int, rows: int) -> None:
    """Print what a lookup takes by itself: no other thread, no device, an index of its own."""
    from kgrun.runtime.embedding.index import Block, RowIndex

    index, took = RowIndex(vocabulary, rows), []
    blocks = [Block.new(ids.shape[1], ids.dtype) for _ in range(9)]
    for number, some in enumerate(ids):
        started = time.thread_time_ns()
        index.lookup(some, blocks[number % len(blocks)])
        took.append(time.thread_time_ns() - started)
    busy = np.array(took[len(took) // 2 :]) / 1e3  # the first half fills the cache
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    pages = setting.read_text("ascii").strip() if setting.exists() else "unknown"
    print(
        f"a lookup by itself: median {np.median(busy):.1f} us of processor time, p95 {np.percentile(busy, 95):.1f} us, "
        f"{np.median(busy) * 1e3 / ids.shape[1]:.1f} ns an id; huge pages {pages}"
    )


def exchange_seconds(session: Session, device: Device) -> float | None:
    """Seconds on the device of the kernel that moves a step's rows; None without one. What is cached is lost."""
    feed: Any = session._feed
    rows = next(iter(feed._fed[0].caches.values()))._rows
    moves = getattr(rows, "_moves", None)
    if not isinstance(moves, list):
        return None
    device.synchronize()
    start = device.record()
    for _ in range(10):
        for some in moves:
            rows._lane.start(some, None, rows._last)
    rows._lane.steps_wait(rows._last)
    return device.elapsed_ns(start, device.record()) / 1e9 / (10 * len(moves))
