"""What every column of the report and every member of its document means: `--help-metrics`, and the schema's texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.cli.render.table import Table

# Columns and lines of the text report.
COLUMNS: dict[str, str] = {
    "kernel": "the step: the node's name, with .1, .2 … where a node needs several",
    "op": "operator, or the custom kernel's key in the graph",
    "grid × block": "blocks of the grid × threads of a block, without trailing ones",
    "median": "half of the samples of this kernel, looked at alone, took less",
    "min": "shortest sample",
    "mean": "arithmetic mean of the samples",
    "p95": "95 % of the samples took no longer",
    "p99": "99 % of the samples took no longer",
    "CV %": "standard deviation of the samples ÷ their mean",
    "%": "the kernel's median as a part of the sum of all medians",
    "cum %": "that part, added up over the rows so far",
    "memory": "bytes read and written, as operator or graph state them, ÷ median",
    "compute": "floating-point operations, as operator or graph state them, ÷ median",
    "% peak": "the larger of both as a part of what this device reached in a copy and in multiply-adds",
    "method": "how the kernel was timed; in the title where all were timed alike",
    "note": "overhead-bound: the median is below three times what the method says of an empty kernel",
    "total": "whole runs from first to last kernel, without timing of single kernels: end to end",
    "of which": "what total is made of: sum of the kernels, what a run hides or adds between them, and the gap left",
    "in a row": "what the kernels would take one after the other, where several ran side by side",
    "floor": "what a method says of a kernel that does nothing",
    "started": "how a run was started: one CUDA graph or launches one by one; and the host's time for it",
    "streams": "with --streams auto: what independent branches side by side brought",
    "GPU": "clocks, temperature and power before and after the measured runs, and what held the clocks down",
    "peak": "what this device reached: bytes of a copy read and written, float32 multiply-adds",
    "advice": "what the numbers say to do next",
    "upload, download": "copies between host and device outside the measured runs",
}

# Members of the JSON document of a run, by definition of the schema and name. Nanoseconds and bytes are integers.
MEMBERS: dict[str, dict[str, str]] = {
    "execute": {
        "schema_version": "version of this form",
        "ok": "whether the command ended with exit 0",
        "kgrun": "version of the program",
        "graph": "name and file of the graph",
        "dims": "value of each dimension",
        "error": "the failure, as every failed document has it",
        "errors": "all failures of the same check",
        "target": "kind of device that the graph was lowered for",
        "device": "what it ran on, with versions of its software",
        "iterations": "whole runs that were measured",
        "warmup": "whole runs before them, not measured",
        "outputs": "a row an output: type, SHA-256 of its bytes in row-major order, value of small ones",
        "kernels": "a row a step, in the order of the run",
        "total_ns": "whole runs from first to last kernel, without timing of single kernels: end to end",
        "total_samples_ns": "with --samples: every whole run",
        "kernels_ns": "sum of the kernels' medians",
        "upload": "bytes copied to the device and nanoseconds that took, outside the measured runs",
        "download": "bytes copied from the device and nanoseconds that took, outside the measured runs",
        "phases_ns": "where the time of the session went",
        "memory": "planned bytes, and the most that the device counted",
        "inplace": "in-place requests and whether they were granted",
        "checked": "names of the checks that were on",
        "checks": "a row a finding of a check",
        "skipped": "with --allow-skip: steps that did not run",
        "uncomputed": "with --allow-skip: outputs that hold no result for it",
        "comparisons": "with --expected: a row an output",
        "cold": "with --cold-report: from the process's start to the first result",
        "repro": "with --repro-always: the command that runs the same again from the bundle",
        "offload": "what waits on the host meanwhile, the transfers, and what they cost",
        "dump": "with --dump: the folder, how many files were written, and the bytes of their tensors",
        "divergence": "with --compare-with: every tensor of a node against the reference, and the first that differs",
        "warnings": "what is worth saying and stopped nothing",
    },
    "kernel_row": {
        "name": COLUMNS["kernel"],
        "op": COLUMNS["op"],
        "stream": "stream it is issued on",
        "grid": "blocks of the grid, by axis",
        "block": "threads of a block, by axis",
        "shared_bytes": "dynamic shared memory of a block",
        "flops_per_s": COLUMNS["compute"],
        "bytes_per_s": COLUMNS["memory"],
    },
    "stats": {
        "min": "shortest sample",
        "median": "half of the samples took less",
        "mean": "arithmetic mean",
        "p95": COLUMNS["p95"],
        "p99": COLUMNS["p99"],
        "max": "longest sample",
        "count": "number of samples",
        "cv": "standard deviation ÷ mean",
    },
    "memory": {
        "static_bytes": "inputs, parameters, constants and outputs, which keep their bytes for the session",
        "dynamic_bytes": "height of the arena in which all else is packed by lifetime",
        "peak_bytes": "static and dynamic bytes together: what a run allocates",
        "lower_bound_bytes": "largest sum of dynamic bytes that live at once: no plan can be lower",
        "no_reuse_bytes": "dynamic bytes if every buffer had its own",
        "optimal": "whether no plan can be lower, proven",
        "planner": "the method that made the plan",
        "plan_ns": "time spent planning, verification included",
        "alignment": "every offset is a multiple of it",
        "peak_step": "a step at which the lower bound is reached",
        "peak_kernel": "that step's name",
        "peak_live": "largest tensors that live then",
        "classes": "aligned bytes and number of buffers by class",
        "pool": "with --memory pool: blocks, use, fragments and holders of the pool",
        "measured_peak_bytes": "most bytes the session held on the device at once, as the device counted them",
    },
}


def describe(definitions: Mapping[str, Any]) -> None:
    """Give the members of the schema's definitions their texts, unless they say already what they mean."""
    for name, texts in MEMBERS.items():
        members = definitions[name]["properties"]
        for member, text in texts.items():
            if member in members and "description" not in members[member]:
                members[member] = members[member] | {"description": text}


def metric_sections() -> Iterator[Table | str]:
    """The page of `--help-metrics`."""
    from kgrun.cli.render.schema import report_schema
    from kgrun.cli.render.table import Table

    yield "A kernel is timed in runs of its own, a whole run without that: both are shown, with the gap between them."
    yield Table("The report's columns and lines", ("name", "meaning"), list(COLUMNS.items()))
    found = report_schema()["$defs"]
    rows = []
    for name, path in (("execute", ""), ("kernel_row", "kernels[]."), ("stats", "….time_ns."), ("memory", "memory.")):
        rows += [(f"{path}{member}", text) for member, text in _texts(found[name]["properties"])]
    rows += [(f"balance.{member}", text) for member, text in _texts(_inside(found["execute"], "balance"))]
    yield Table("Members of the JSON document", ("member", "meaning"), rows)


def _inside(schema: Mapping[str, Any], member: str) -> Mapping[str, Any]:
    """Properties of a member that is a record or null."""
    properties: Mapping[str, Any] = schema["properties"][member]["anyOf"][0]["properties"]
    return properties


def _texts(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for member, schema in properties.items():
        yield member, schema.get("description", "")
