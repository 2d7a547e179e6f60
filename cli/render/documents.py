"""The JSON documents of plans and runs: plain values, integers for bytes and nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.checks import check_members
from kgrun.cli.render.divergence import divergence_row
from kgrun.cli.render.feeds import feed_members
from kgrun.cli.render.lifetimes import bytes_by_class, live_at
from kgrun.cli.render.measured import measured_members, timed_members
from kgrun.cli.render.offload import offload_row
from kgrun.cli.render.pool import pool_member
from kgrun.cli.render.ranks import rank_members
from kgrun.graphs.bound import Warning
from kgrun.graphs.errors import format_path
from kgrun.graphs.version import __version__
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.bound import BoundGraph
    from kgrun.runtime.devices.base import DeviceInfo
    from kgrun.runtime.memory.compare_planners import PlannerRow
    from kgrun.runtime.report import Comparison, RunReport, StepReport, TimeStats

    Array = np.ndarray[Any, Any]

Row = dict[str, Any]
VALUE_ELEMENTS = 16  # outputs of up to so many elements are shown by value


def members(record: Any) -> Row:
    """The fields of a flat dataclass; `dataclasses.asdict` copies deeply and takes ten times as long."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def graph_fields(bound: BoundGraph) -> Row:
    """What was run or planned, for any document."""
    return {
        "kgrun": __version__,
        "graph": {"name": bound.source.name, "file": bound.source.file},
        "dims": dict(bound.dims),
    }


def memory_row(program: Program, plan: MemoryPlan) -> Row:
    """The `memory` object: the plan's sums, its certificate, its peak."""
    peak = plan.peak_step
    return {
        "static_bytes": plan.static_bytes,
        "dynamic_bytes": plan.dynamic_bytes,
        "peak_bytes": plan.peak_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "no_reuse_bytes": plan.no_reuse_bytes,
        "optimal": plan.optimal,
        "planner": plan.planner,
        "plan_ns": plan.plan_ns,
        "alignment": plan.alignment,
        "peak_step": peak,
        "peak_kernel": program.steps[peak].name if peak is not None else None,
        "peak_live": [p.name for p in live_at(plan, peak)[:10]] if peak is not None else [],
        "classes": [
            {"class": str(row.memory_class), "nbytes": row.nbytes, "count": row.count}
            for row in bytes_by_class(plan.placements)
        ],
    } | pool_member(plan)


def tensor_rows(plan: MemoryPlan) -> list[Row]:
    """A row for each tensor or workspace that has bytes of its own; offsets count from its region's start."""
    return [
        {
            "name": place.name,
            "class": str(place.memory_class),
            "nbytes": place.nbytes,
            "aligned_bytes": place.aligned,
            "space": place.space,
            "offset": place.offset,
            "first_step": place.first_step,
            "last_step": place.last_step,
        }
        | ({"lives": [list(span) for span in place.lives]} if place.lives else {})
        for place in plan.placements
    ]


def alias_rows(program: Program) -> list[Row]:
    """A row for each tensor that lives in another one's bytes; `offset` counts from that one's start."""
    rows = []
    for name, slot in program.slots.items():
        buffer = program.buffers[slot.buffer]
        owner = buffer.tensors[0] if buffer.tensors else buffer.name  # also where it comes back to other bytes
        if name != owner:
            why = (buffer.shares or {}).get(name)
            rows.append({"name": name, "of": owner, "offset": slot.offset, "why": why})
    return rows


def decision_rows(program: Program) -> list[Row]:
    """In-place requests and what became of them."""
    return [members(decision) for decision in program.decisions]


def warning_rows(warnings: Iterable[Warning]) -> list[Row]:
    """Warnings with the place they speak of."""
    return [{"code": w.code, "message": w.message, "where": format_path(w.path) or None} for w in warnings]


def all_warnings(program: Program, *more: Warning) -> list[Warning]:
    """Warnings of the checks, of lowering, and `more`, each once."""
    return list(dict.fromkeys((*program.graph.warnings, *program.warnings, *more)))


def planner_rows(planners: Iterable[PlannerRow]) -> Row:
    """The member `planners` of `--compare`; nothing where there was no comparison."""
    rows = [members(row) for row in planners]
    return {"planners": rows} if rows else {}


def plan_document(program: Program, plan: MemoryPlan) -> Row:
    """`plan-memory --json`."""
    return graph_fields(program.graph) | {
        "target": program.target,
        "memory": memory_row(program, plan),
        "steps": [{"name": s.name, "op": s.op, "stream": s.stream} for s in program.steps],
        "tensors": tensor_rows(plan),
        "aliases": alias_rows(program),
        "inplace": decision_rows(program),
        "offload": offload_row(program),
        "warnings": warning_rows(all_warnings(program)),
    }


def run_document(report: RunReport, samples: bool = False) -> Row:
    """`execute --json`; `samples` adds each time that was taken."""
    program = report.program
    raw = {"total_samples_ns": list(report.total_samples)} if samples else {}
    return graph_fields(program.graph) | {
        "target": program.target,
        "device": device_row(report.device),
        "iterations": report.iterations,
        "warmup": report.warmup,
        "outputs": [output_row(name, array) for name, array in report.outputs.items()],
        "kernels": [step_row(step, samples) | timed_members(step, report) for step in report.steps],
        "total_ns": stats_row(report.total),
        **raw,
        "kernels_ns": timed_sum(report.steps),
        **measured_members(report),
        **feed_members(report),
        **rank_members(report),
        "upload": members(report.upload),
        "download": members(report.download),
        "phases_ns": dict(report.phases_ns),
        "memory": memory_row(program, report.plan) | {"measured_peak_bytes": report.measured_peak_bytes},
        "inplace": decision_rows(program),
        "offload": offload_row(program, report),
        **check_members(report),
        "comparisons": [comparison_row(each) for each in report.comparisons],
        **({"repro": report.repro} if report.repro is not None else {}),
        **({"divergence": divergence_row(report.divergence)} if report.divergence is not None else {}),
        **({"dump": members(report.dump)} if report.dump is not None else {}),
        "warnings": warning_rows(all_warnings(program, *report.warnings)),
    }


def device_row(device: DeviceInfo) -> Row:
    """The device a report speaks of."""
    return {
        "kind": device.kind,
        "name": device.name,
        "index": device.index,
        "arch": device.arch,
        "total_memory_bytes": device.total_memory,
        "versions": dict(device.versions),
    }


def stats_row(stats: TimeStats | None) -> Row | None:
    """Statistics in nanoseconds; None where nothing was timed."""
    return members(stats) if stats is not None else None


def timed_sum(steps: Iterable[StepReport]) -> int | None:
    """Sum of the medians of the steps that were timed, None where there is none."""
    medians = [step.times.median for step in steps if step.times is not None]
    return sum(medians) if medians else None


def step_row(step: StepReport, samples: bool) -> Row:
    """One kernel's row."""
    raw = {"samples_ns": list(step.samples)} if samples else {}
    return {
        "name": step.name,
        "op": step.op,
        "stream": step.stream,
        "grid": step.grid,
        "block": step.block,
        "shared_bytes": step.shared,
        "time_ns": stats_row(step.times),
        **raw,
        "method": step.method,
        "flops": step.flops,
        "nbytes": step.nbytes,
        "flops_per_s": rate(step.flops, step),
        "bytes_per_s": rate(step.nbytes, step),
    }


def rate(amount: int | None, step: StepReport) -> int | None:
    """`amount` a second at the step's median time, None where either is unknown."""
    if amount is None or step.times is None or not step.times.median:
        return None
    return amount * 1_000_000_000 // step.times.median


def output_row(name: str, array: Array) -> Row:
    """One output: type, digest of its bytes (row-major, little-endian), and its value when it is small."""
    import hashlib

    import numpy as np

    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    row = {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "sha256": hashlib.sha256(content.data).hexdigest(),
    }
    return row | ({"value": plain_value(array)} if array.size <= VALUE_ELEMENTS else {})


def plain_value(array: Array) -> Any:
    """The elements as nested lists of Python numbers; floats at their own precision, NaN and infinities None."""
    import numpy as np

    if array.dtype.kind in "biu":
        return array.tolist()
    import math

    def number(element: Any) -> float | None:
        value = float(str(element))  # the shortest text of a float32 is no float64 with 17 digits
        return value if math.isfinite(value) else None

    flat = [number(element) for element in array.reshape(-1)]
    boxed = np.empty(array.size, dtype=object)
    boxed[:] = flat
    return boxed.reshape(array.shape).tolist()


def comparison_row(comparison: Comparison) -> Row:
    """One output against its expected value."""
    return members(comparison)
