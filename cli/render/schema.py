"""The JSON Schema (draft 2020-12) of what `--json` prints; `docs/report.schema.json` is its published copy."""

from __future__ import annotations

from kgrun.cli.render.schema_parts import (
    BOOLEAN,
    COUNT,
    DIMS,
    NUMBER,
    STRING,
    Schema,
    mapping,
    maybe,
    record,
    ref,
    rows,
)
from kgrun.cli.render.schema_pool import POOL

REPORT_ID = "https://kgrun.dev/schema/report-1.json"

ERROR = record(
    {
        "code": STRING,
        "exit": COUNT,
        "message": STRING,
        "where": maybe(STRING),
        "help": maybe(STRING),
        "details": mapping({}),
    },
    optional=("details",),
)
STATS = record(dict.fromkeys(("min", "median", "mean", "p95", "p99", "max", "count"), COUNT) | {"cv": NUMBER})
TRANSFER = record({"nbytes": COUNT, "ns": COUNT})
WARNING = record({"code": STRING, "message": STRING, "where": maybe(STRING)})
DECISION = record({"node": STRING, "output": STRING, "input": STRING, "granted": BOOLEAN, "reason": STRING})
DEVICE = record(
    {
        "kind": STRING,
        "name": STRING,
        "index": COUNT,
        "arch": maybe(STRING),
        "total_memory_bytes": COUNT,
        "versions": mapping(STRING),
    }
)
MEMORY_SUMS: dict[str, Schema] = {
    "static_bytes": COUNT,
    "dynamic_bytes": COUNT,
    "peak_bytes": COUNT,
    "lower_bound_bytes": COUNT,
    "no_reuse_bytes": COUNT,
    "optimal": BOOLEAN,
    "planner": STRING,
    "plan_ns": COUNT,
}
MEMORY = record(
    MEMORY_SUMS
    | {
        "alignment": COUNT,
        "peak_step": maybe(COUNT),
        "peak_kernel": maybe(STRING),
        "peak_live": rows(STRING),
        "classes": rows(record({"class": STRING, "nbytes": COUNT, "count": COUNT})),
        "measured_peak_bytes": COUNT,
        "pool": POOL,
    },
    optional=("measured_peak_bytes", "pool"),
)
TENSOR = record(
    {
        "name": STRING,
        "class": STRING,
        "nbytes": COUNT,
        "aligned_bytes": COUNT,
        "space": {"enum": ["static", "dynamic"]},
        "offset": COUNT,
        "first_step": {"type": "integer"},
        "last_step": {"type": "integer"},
        "lives": rows(rows({"type": "integer"})),
    },
    optional=("lives",),
)
PLANNER = record(
    {
        "planner": STRING,
        "height": COUNT,
        "lower_bound": COUNT,
        "ratio": maybe(NUMBER),
        "seconds": NUMBER,
        "cpu_seconds": NUMBER,
        "optimal": BOOLEAN,
    }
)
OUTPUT = record({"name": STRING, "dtype": STRING, "shape": DIMS, "sha256": STRING, "value": {}}, optional=("value",))
COMPARISON = record(
    {
        "name": STRING,
        "ok": BOOLEAN,
        "mismatched": COUNT,
        "size": COUNT,
        "max_abs": maybe(NUMBER),
        "max_rel": maybe(NUMBER),
        "reason": maybe(STRING),
    }
)
ACCESS = {"where": maybe(STRING), "operation": STRING, "block": DIMS, "thread": DIMS}
FINDING = record(
    {
        "check": STRING,
        "message": STRING,
        "where": maybe(STRING),
        "node": STRING,
        "op": STRING,
        "tensor": maybe(STRING),
        "element": maybe(COUNT),
        "block": maybe(DIMS),
        "thread": maybe(DIMS),
        "count": COUNT,
        "other": maybe(record(ACCESS)),
    }
)
SKIPPED = record({"name": STRING, "op": STRING, "reason": STRING, "where": maybe(STRING)})
COMMON: dict[str, Schema] = {
    "schema_version": {"const": 1},
    "ok": BOOLEAN,
    "kgrun": STRING,
    "graph": record({"name": STRING, "file": maybe(STRING)}),
    "dims": mapping(COUNT),
}
FAILURE: dict[str, Schema] = {"error": ref("error"), "errors": rows(ref("error"))}


def _execute() -> Schema:
    from kgrun.cli.render.divergence import DIVERGENCE
    from kgrun.cli.render.schema_measured import COLD, MEASURED

    members = (
        COMMON
        | FAILURE
        | {
            "target": STRING,
            "device": DEVICE,
            "iterations": COUNT,
            "warmup": COUNT,
            "outputs": rows(OUTPUT),
            "kernels": rows(ref("kernel_row")),
            "total_ns": maybe(ref("stats")),
            "total_samples_ns": rows(COUNT),
            "kernels_ns": maybe(COUNT),
            **MEASURED,
            "upload": TRANSFER,
            "download": TRANSFER,
            "phases_ns": mapping(COUNT),
            "memory": ref("memory"),
            "inplace": rows(DECISION),
            "offload": ref("offload"),
            "checked": rows(STRING),
            "checks": rows(FINDING),
            "skipped": rows(SKIPPED),
            "uncomputed": rows(STRING),
            "comparisons": rows(COMPARISON),
            "cold": COLD,
            "repro": STRING,
            "divergence": DIVERGENCE,
            "dump": record({"folder": STRING, "files": COUNT, "nbytes": COUNT}),
            "warnings": rows(WARNING),
        }
    )
    return record(members, optional=("total_samples_ns", "cold", "repro", "divergence", "dump", *FAILURE))


def _plan() -> Schema:
    step = record({"name": STRING, "op": STRING, "stream": STRING})
    alias = record({"name": STRING, "of": STRING, "offset": COUNT, "why": maybe(STRING)})
    return record(
        COMMON
        | {
            "target": STRING,
            "memory": ref("memory"),
            "steps": rows(step),
            "tensors": rows(TENSOR),
            "aliases": rows(alias),
            "inplace": rows(DECISION),
            "offload": ref("offload"),
            "warnings": rows(WARNING),
            "planners": rows(PLANNER),
        },
        optional=("planners",),
    )


def _packing() -> Schema:
    common = {key: COMMON[key] for key in ("schema_version", "ok", "kgrun")}
    memory = record(MEMORY_SUMS | {"limit_bytes": maybe(COUNT)})
    members = {"file": STRING, "memory": memory, "tensors": rows(TENSOR), "planners": rows(PLANNER)}
    return record(common | members, optional=("planners",))


def _validate() -> Schema:
    node = record(
        {"name": STRING, "op": STRING, "stream": STRING, "inputs": rows(maybe(STRING)), "outputs": rows(maybe(STRING))}
    )
    tensor = record(
        {
            "name": STRING,
            "role": STRING,
            "dtype": STRING,
            "shape": DIMS,
            "nbytes": COUNT,
            "output": BOOLEAN,
            "discovered": BOOLEAN,
        }
    )
    kernel = record(
        {
            "kernel": STRING,
            "entry": STRING,
            "language": STRING,
            "params": rows(STRING),
            "registers": maybe(COUNT),
            "static_shared": COUNT,
            "max_threads": maybe(COUNT),
        }
    )
    members: dict[str, Schema] = {
        "target": maybe(STRING),
        "kernels": rows(kernel),
        "nodes": rows(node),
        "tensors": rows(tensor),
        "outputs": rows(STRING),
        "warnings": rows(WARNING),
    }
    return record(COMMON | members)


def _explain() -> Schema:
    parts = {
        "kernel": maybe(record({"node": STRING, "op": STRING}, open=True)),
        "tensor": maybe(record({"name": STRING, "role": STRING, "nbytes": COUNT}, open=True)),
        "peak": maybe(record({"live_bytes": COUNT, "lower_bound": COUNT, "height": COUNT}, open=True)),
    }
    return record(COMMON | {"target": STRING} | parts)


def _import() -> Schema:
    common = {key: COMMON[key] for key in ("schema_version", "ok", "kgrun")}
    graph = record({"name": STRING, "file": STRING})
    counts = dict.fromkeys(("kernels", "nodes", "tensors"), COUNT)
    files = rows(record({"file": STRING, "nbytes": COUNT}))
    return record(common | {"source": STRING, "kind": STRING, "graph": graph} | counts | {"files": files})


def _failure() -> Schema:
    members: dict[str, Schema] = {"schema_version": {"const": 1}, "ok": {"const": False}}
    return record(members | FAILURE)


def report_schema() -> Schema:
    """The schema: any one document, each kind by its own name in `$defs`."""
    from kgrun.cli.render.metrics import describe
    from kgrun.cli.render.schema_diff import diff_document
    from kgrun.cli.render.schema_measured import kernel_row
    from kgrun.cli.render.schema_offload import OFFLOAD
    from kgrun.cli.render.schema_tools import (
        doctor_schema,
        dump_check_schema,
        run_op_schema,
        several_schema,
        sweep_schema,
    )

    documents = {
        "execute": _execute(),
        "plan_memory": _plan(),
        "plan_memory_csv": _packing(),
        "validate": _validate(),
        "explain": _explain(),
        "import": _import(),
        "diff": diff_document(),
        "doctor": doctor_schema(),
        "execute_several": several_schema(),
        "execute_sweep": sweep_schema(),
        "run_op": run_op_schema(),
        "dump_check": dump_check_schema(),
        "failure": _failure(),
    }
    definitions = documents | {
        "kernel_row": kernel_row(),
        "error": ERROR,
        "stats": STATS,
        "memory": MEMORY,
        "offload": OFFLOAD,
    }
    describe(definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": REPORT_ID,
        "title": "kgrun report, version 1",
        "description": "Bytes and nanoseconds are integers; null stands for what is unknown or no finite number.",
        "anyOf": [ref(name) for name in documents],
        "$defs": definitions,
    }
