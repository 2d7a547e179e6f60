"""The records that Python, the generated code and the scheduler share: one table each, three renderings."""

from __future__ import annotations

import ctypes
from typing import Any

_SIZES = {"u32": 4, "u64": 8}

# One launch: written by Python before, read by every worker.
LAUNCH = (
    ("grid_x", "u32"),
    ("grid_y", "u32"),
    ("grid_z", "u32"),
    ("block_x", "u32"),
    ("block_y", "u32"),
    ("block_z", "u32"),
    ("threads", "u32"),  # of a block
    ("warps", "u32"),
    ("blocks", "u64"),
    ("params", "u64"),  # the packed argument buffer
    ("region", "u64"),  # the kernel's code: rows of threads
    ("step", "u64"),  # the kernel's code: one thread
    ("matrix", "u64"),  # kg_collect_matrix, where the kernel has matrix instructions
    ("module", "u64"),  # where the module's variables lie
    ("next_block", "u64"),  # taken by atomic addition
    ("stop", "u32"),  # set by Python on timeout or Ctrl-C, by a worker on deadlock or trap
    ("schedule", "u32"),  # 0 forward, 1 reverse, 2 random
    ("seed", "u64"),
    ("block_stride", "u64"),  # block number b of the order is (b * stride + first) % blocks
    ("block_first", "u64"),
    ("kinds", "u64"),  # u32 for each state: what the thread waits for there
    ("lines", "u64"),  # u32 for each state: a number that differs between source lines
    ("checks", "u32"),  # bits: 1 bounds, 2 race, 4 init, 8 barrier
    ("buffer_count", "u32"),
    ("buffers", "u64"),  # BUFFER records, sorted by begin
    ("faults", "u64"),  # FAULT records
    ("fault_capacity", "u32"),
    ("fault_count", "u32"),
    ("print", "u64"),  # void(u64 format, u64 arguments, u64 block, u64 thread)
    ("shared_bytes", "u64"),  # static and dynamic
    ("shared_static", "u64"),
    ("shared_ranges", "u64"),  # u32 pairs [begin, end) of the valid parts of shared memory
    ("shared_range_count", "u32"),
    ("waits", "u32"),  # whether threads can wait for each other at all
    ("looped", "u32"),  # whether kg_region exists
    ("reserved", "u32"),
    ("workers", "u32"),
    ("stuck", "u32"),  # workers that have ended, or have seen nothing but spinning threads for long
    ("local_bytes", "u64"),  # per thread
    ("frame_bytes", "u64"),  # per thread
    ("releases", "u64"),  # u32 per block: when it last released, for the race check
    ("time", "u64"),  # atomics and fences so far
    ("quick", "u32"),  # 1: the quick pass of a checked launch, which only says whether there may be a fault
    ("suspect", "u32"),  # set by the quick pass: there may be one
    ("shift", "u32"),  # of the quick pass: a stamp is kept for each 1 << shift bytes of global memory
    ("shared_shift", "u32"),  # the same of shared memory
    ("dynamic_bytes", "u64"),  # of dynamic shared memory
    ("chunk", "u64"),  # blocks that a worker takes at once
    ("only", "u32"),  # of the quick pass: 1 only looks at states that can be looked at, 2 only runs them
    ("unsure", "u32"),  # set where only looking was not enough
    ("grid_barrier", "u64"),  # of a cooperative launch: where its blocks count who has come; else 0
    ("heap", "u64"),  # the HEAP record, where accesses are checked one by one
)

# One block in flight: a worker's own working memory.
BLOCK = (
    ("cta_x", "u32"),
    ("cta_y", "u32"),
    ("cta_z", "u32"),
    ("live", "u32"),  # threads that have not ended
    ("linear", "u64"),
    ("shared", "u64"),
    ("frames", "u64"),
    ("local", "u64"),
    ("pend", "u64"),  # i32 per thread: the state it waits in, 0 at the start, -1 ended
    ("mail", "u64"),  # u32 per thread and word: operands and results of warp operations
    ("ready", "u64"),  # u32 per warp: lanes that may run
    ("alive", "u64"),  # u32 per warp: lanes that have not ended
    ("uniform", "u64"),  # i32 per warp: the state all its lanes share, or -2
    ("warp_epochs", "u64"),  # u32 per warp: warp-wide synchronisations so far
    ("arrivals", "u64"),  # u32 for each of 16 barriers: bar.arrive counted so far
    ("order", "u64"),  # u32 per thread: scratch for shuffled orders
    ("shadow", "u64"),  # of shared memory: SHADOW records, one for each 4 bytes
    ("zero", "u64"),  # 0, which LLVM must not know
    ("sink", "u64"),  # 64 bytes that stand in for memory that must not be touched
    ("random", "u64"),
    ("epoch", "u32"),  # barriers so far
    ("last_buffer", "u32"),
    ("acquired", "u32"),  # when the block last read through an atomic
    ("reserved", "u32"),
    ("synced", "u64"),  # u32 pairs per thread: when it last released, when it last acquired
    ("started", "u32"),
    ("idle", "u32"),  # rounds in which only spinning threads ran
    ("taken", "u64"),  # of a worker's first record: blocks it has taken and not begun, [taken, taken_end)
    ("taken_end", "u64"),
    ("stack", "u64"),  # end of the stack on which functions of the kernel keep their variables
    # Of the quick pass. A stamp is a moment of the worker's time << 11, beside who was there then: see quick.cu.
    ("worker", "u64"),  # the worker's first record, whose `ticks` count
    ("slots", "u64"),  # SLOT records
    ("area", "u64"),  # stamps of global memory: of writers, behind them of readers
    ("area_bytes", "u64"),  # of one half
    ("shared_reads", "u64"),  # from `shadow`, where stamps of writers lie, to those of readers
    ("warp_lows", "u64"),  # u32 per warp: stamp of its last synchronisation
    ("ticks", "u32"),
    ("now", "u32"),  # the present stamp, with nobody in it
    ("low", "u32"),  # older stamps are of earlier launches
    ("block_low", "u32"),  # older ones are of other blocks
    ("barrier_low", "u32"),  # older ones are of before the last barrier
    ("sync_low", "u32"),  # older ones are of before the last moment at which every warp synchronised
    ("complete", "u32"),  # whether all of shared memory was written
    ("noted", "u32"),  # whether stamps of readers have been written since the launch began
    ("aliased", "u32"),  # whether stamps matter for memory that the kernel only reads through this argument
    ("reserved2", "u32"),
)

# What the quick pass knows of the memory that an argument points into.
SLOT = (
    ("begin", "u64"),
    ("bytes", "u64"),  # that may be read; 0: the argument points nowhere
    ("writable", "u64"),  # that may be written
    ("stamps", "u64"),  # of writers, or 0
    ("floor", "u32"),  # a stamp below this says that what was read holds data; 0 where nothing does at first
    ("reserved", "u32"),
)

BUFFER = (
    ("begin", "u64"),
    ("end", "u64"),
    ("shadow", "u64"),  # SHADOW records, one for each 4 bytes, or 0
    ("flags", "u32"),  # 1 read-only, 2 holds no data at first
    ("index", "u32"),
)

# Memory that kernels take by malloc, where accesses are checked.
HEAP = (
    ("begin", "u64"),
    ("bytes", "u64"),
    ("granules", "u64"),  # a byte for each 16 bytes: see heap.cu
    ("used", "u64"),  # bytes given out so far
    ("live", "u64"),  # blocks that were not freed
)

FAULT = (
    ("kind", "u32"),
    ("site", "u32"),
    ("block", "u64"),
    ("thread", "u32"),
    ("size", "u32"),
    ("address", "u64"),
    ("buffer", "u32"),  # index, or all ones
    ("other_site", "u32"),
    ("other_block", "u64"),
    ("other_thread", "u32"),
    ("count", "u32"),
)

# Of each 4 bytes: the last writer and two readers. A block is stored plus one (0: nobody); a thread beside the
# barriers of its block so far; a site beside the warp's own synchronisations; a time counts atomics and fences.
SHADOW = (
    *(
        (f"{who}_{what}", "u32")
        for who in ("writer", "reader", "second")
        for what in ("block", "thread", "site", "time")
    ),
    ("writer_epoch", "u32"),
    ("reader_epoch", "u32"),
    ("second_epoch", "u32"),
    ("valid", "u32"),  # bit per byte: somebody wrote it; above them, of shared memory, the block that the record is of
)

RECORDS = {
    "Launch": LAUNCH,
    "Block": BLOCK,
    "Slot": SLOT,
    "Buffer": BUFFER,
    "Heap": HEAP,
    "Fault": FAULT,
    "Shadow": SHADOW,
}
FAULT_KINDS = (
    "out-of-bounds",
    "read-only-write",
    "misaligned",
    "race",
    "block-race",
    "uninitialised",
    "deadlock",
    "divergent-barrier",
    "trap",
    "assertion",
    "use-after-free",
    "bad-free",
)

# What a thread waits for in a state.
KINDS = (
    *("start", "barrier", "yield", "syncwarp", "shfl_up", "shfl_down", "shfl_bfly", "shfl_idx"),
    *("vote_all", "vote_any", "vote_uni", "vote_ballot", "match_any", "match_all"),
    *("redux_add", "redux_min", "redux_max", "redux_umin", "redux_umax", "redux_and", "redux_or", "redux_xor"),
    *("activemask", "ldmatrix", "mma_f16", "mma_bf16", "mma_tf32", "mma_s8", "mma_f16_f16", "wmma", "movmatrix"),
)
KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}


def offset_of(record: tuple[tuple[str, str], ...], name: str) -> int:
    """Byte offset of a field; the tables keep 8-byte fields aligned, which `structure` checks."""
    offset = 0
    for field, kind in record:
        if field == name:
            return offset
        offset += _SIZES[kind]
    raise KeyError(name)


def structure(name: str) -> type[ctypes.Structure]:
    """The record as a ctypes structure."""
    kinds: dict[str, Any] = {"u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
    record = RECORDS[name]
    made = type(name, (ctypes.Structure,), {"_fields_": [(field, kinds[kind]) for field, kind in record]})
    assert ctypes.sizeof(made) == sum(_SIZES[kind] for _, kind in record), f"{name} has holes"
    return made


def c_text() -> str:
    """The records and numbers as CUDA C, for the runtime's own source."""
    lines = ["typedef unsigned int u32; typedef unsigned long long u64; typedef long long i64;"]
    for name, record in RECORDS.items():
        fields = " ".join(f"{kind} {field};" for field, kind in record)
        lines.append(f"struct {name} {{ {fields} }};")
    lines.append("enum { " + ", ".join(f"K_{kind}" for kind in KINDS) + " };")
    names = ", ".join("F_" + kind.replace("-", "_") for kind in FAULT_KINDS)
    lines.append(f"enum {{ {names} }};")
    return "\n".join(lines) + "\n"


LaunchRecord = structure("Launch")
BlockRecord = structure("Block")
BufferRecord = structure("Buffer")
SlotRecord = structure("Slot")
HeapRecord = structure("Heap")
FaultRecord = structure("Fault")
