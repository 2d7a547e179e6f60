"""The part of the reports' schema that says how a run was measured; each member with what it means."""

from __future__ import annotations

from kgrun.cli.render.schema_feeds import FEEDS
from kgrun.cli.render.schema_parts import (
    BOOLEAN,
    COUNT,
    DIMS,
    NUMBER,
    STRING,
    Schema,
    described,
    mapping,
    maybe,
    record,
    ref,
    rows,
)
from kgrun.cli.render.schema_ranks import RANKS

BALANCE = record(
    {
        "kernels_ns": described(COUNT, "sum of the kernels' medians, each looked at alone"),
        "ramps_ns": described(COUNT, "the part of it that the kernel before hides in a run"),
        "between_ns": described({"type": "integer"}, "what different kernels in a row take more than each repeated"),
        "start_ns": described(COUNT, "what a run takes before its first kernel"),
        "expected_ns": described(COUNT, "a run of the kernels in a row: kernels - ramps + between + start"),
        "longest_chain_ns": described(COUNT, "the same of the longest chain of kernels that wait for each other"),
        "total_ns": described(COUNT, "median of whole runs"),
        "difference_ns": described({"type": "integer"}, "total - expected"),
        "difference": described(
            {"enum": ["gaps", "side by side", "instrumentation", "faster together"]}, "what the difference is"
        ),
        "consistent": described(BOOLEAN, "the run lies between longest chain and expected time, within 3 %"),
    }
)
GPU_STATE = record(
    {
        "sm_mhz": maybe(COUNT),
        "memory_mhz": maybe(COUNT),
        "max_sm_mhz": maybe(COUNT),
        "temperature_c": maybe(COUNT),
        "power_mw": maybe(COUNT),
        "throttle": described(rows(STRING), "what held the clocks down"),
    }
)
COLD = record(
    {
        "total_ns": COUNT,
        "phases": rows(record({"phase": STRING, "ns": COUNT, "note": maybe(STRING)})),
        "compiled": rows(record({"name": STRING, "ns": COUNT, "kind": STRING, "from_cache": BOOLEAN})),
    }
)
MEASURED: dict[str, Schema] = {
    "cache": described({"enum": ["hot", "cold"]}, "cold: emptied before everything that was timed"),
    "issue_ns": described(maybe(COUNT), "median time that the host took to start a run"),
    "wall_ns": described(COUNT, "by the host's clock, all whole runs with what lies between them"),
    "floors_ns": described(mapping(COUNT), "by method, what it says of a kernel that does nothing"),
    "balance": described(maybe(BALANCE), "how kernels and runs add up"),
    "not_replayed": described(maybe(STRING), "why kernels were launched one by one; null: they ran as one CUDA graph"),
    "streams": described(
        maybe(record({"chosen": COUNT, "tried": COUNT, "one_ns": COUNT, "many_ns": COUNT})),
        "with --streams auto: streams used and tried, medians of runs on one and on several",
    ),
    "gpu_states": described(rows(GPU_STATE), "what the sensors said before and after the measured runs"),
    "roofline": described(
        maybe(record({"bytes_per_s": COUNT, "flops_per_s": COUNT})),
        "peaks measured on this device: memory read and written in a copy, float32 multiply-adds",
    ),
    "advice": described(rows(record({"code": STRING, "message": STRING})), "what the numbers say to do next"),
    **FEEDS,
    **RANKS,
}
TIMED: dict[str, Schema] = {
    "floor_ns": described(COUNT, "what the row's method says of a kernel that does nothing; 0: not measured"),
    "overhead_bound": described(BOOLEAN, "the median is below three floors"),
    "memory_share": described(maybe(NUMBER), "bytes a second, as a part of the roofline's"),
    "compute_share": described(maybe(NUMBER), "operations a second, as a part of the roofline's"),
}


def kernel_row() -> Schema:
    """A row of `kernels`."""
    members = {
        "name": STRING,
        "op": STRING,
        "stream": STRING,
        "grid": maybe(DIMS),
        "block": maybe(DIMS),
        "shared_bytes": maybe(COUNT),
        "time_ns": described(maybe(ref("stats")), "of the kernel looked at alone; null: not timed"),
        "samples_ns": described(rows(COUNT), "with --samples: every time taken"),
        "method": described(STRING, "how it was timed: graph of repeats, CUPTI, stream events, host clock, not timed"),
        "flops": described(maybe(COUNT), "operations of one run, as the operator or the graph states them"),
        "nbytes": described(maybe(COUNT), "bytes read and written by one run"),
        "flops_per_s": maybe(COUNT),
        "bytes_per_s": maybe(COUNT),
    }
    return record(members | TIMED, optional=("samples_ns",))
