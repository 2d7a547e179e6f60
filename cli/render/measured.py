"""How a run was measured: the lines and the JSON members that say what the times are worth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.text import count_text, percent, rate_text, time_text

if TYPE_CHECKING:
    from kgrun.runtime.report import GpuState, RunReport, StepReport

Row = dict[str, Any]


def measured_lines(report: RunReport) -> Iterator[str]:
    """How steps add up to runs, floors, how runs were started, clocks, peaks, advice."""
    yield from _balance_lines(report)
    for method, floor in sorted(report.floors_ns.items()):
        bound = sum(1 for step in report.steps if step.method == method and step.overhead_bound)
        few = f"; {count_text(bound, 'kernel')} under three times that: overhead-bound" if bound else ""
        if floor:
            yield f"  floor        {method}: {time_text(floor)} for a kernel that does nothing{few}"
    yield from _start_lines(report)
    if report.queues and report.iterations and report.wall_ns:
        each = report.wall_ns // report.iterations
        yield f"  in a row     {time_text(each)} a run with what lies between, {1e9 / each:,.1f} runs a second"
    if report.cache == "cold":
        yield "  cache        emptied before every run and every kernel timed; its time is taken off"
    yield from _streams_lines(report)
    yield from _state_lines(report.gpu_states)
    if report.roofline is not None:
        peak = report.roofline
        memory, compute = rate_text(peak.bytes_per_s, "B/s"), rate_text(peak.flops_per_s, "FLOP/s")
        yield f"  peak         memory {memory} copied, compute {compute} in float32, both measured here"
    yield from (f"  advice       {line['message']}" for line in advice_rows(report))


def _balance_lines(report: RunReport) -> Iterator[str]:
    from kgrun.cli.render.documents import timed_sum

    found = report.balance
    if found is None:
        kernels = timed_sum(report.steps)
        if report.total is not None and kernels is not None:
            gap = report.total.median - kernels
            name = "gaps" if gap >= 0 else "overlap"
            yield f"  of which     kernels {time_text(kernels)}, {name} {time_text(abs(gap))}"
        return
    parts = [f"kernels {time_text(found.kernels_ns)}"]
    if found.ramps_ns:
        parts.append(f"less {time_text(found.ramps_ns)} of launching hidden by the kernel before")
    if found.between_ns:
        sign = "plus" if found.between_ns > 0 else "less"
        parts.append(f"{sign} {time_text(abs(found.between_ns))} between different kernels")
    if found.start_ns:
        parts.append(f"plus {time_text(found.start_ns)} to start")
    apart = time_text(abs(found.difference_ns))
    share = percent(abs(found.difference_ns), found.total_ns)
    sign = "" if found.difference_ns >= 0 else "−"
    yield f"  of which     {', '.join(parts)}, {found.difference} {sign}{apart} ({share} %)"
    if found.difference == "side by side":
        yield f"  in a row     {time_text(found.expected_ns)}; longest chain {time_text(found.longest_chain_ns)}"


def _start_lines(report: RunReport) -> Iterator[str]:
    if report.device.kind == "cpu" or report.issue_ns is None:
        return
    one_by_one = f"kernel by kernel: {report.not_replayed}"
    how = "as one CUDA graph" if report.not_replayed is None else one_by_one
    yield f"  started      {how}; the host takes {time_text(report.issue_ns)} a run"


def _streams_lines(report: RunReport) -> Iterator[str]:
    found = report.streams
    if found is None:
        return
    times = f"{time_text(found.one_ns)} on one stream, {time_text(found.many_ns)} on {found.tried}"
    factor = f"{found.one_ns / found.many_ns:.2f} × faster" if found.many_ns else "not measurable"
    what = factor if found.chosen > 1 else "one is kept"
    yield f"  streams      {times}: {what}"


def _state_lines(states: tuple[GpuState, ...]) -> Iterator[str]:
    if not states:
        return
    first, last = states[0], states[-1]
    pairs = (
        ("SM", first.sm_mhz, last.sm_mhz, "MHz", 1),
        ("memory", first.memory_mhz, last.memory_mhz, "MHz", 1),
        ("temperature", first.temperature_c, last.temperature_c, "°C", 1),
        ("power", first.power_mw, last.power_mw, "W", 1000),
    )
    texts = [
        f"{name} {round(a / unit)}{f' → {round(b / unit)}' if b != a else ''} {sign}"
        for name, a, b, sign, unit in pairs
        if a is not None and b is not None
    ]
    reasons = tuple(dict.fromkeys((*first.throttle, *last.throttle)))
    texts += [f"held down by {', '.join(reasons)}"] if reasons else []
    if texts:
        yield f"  GPU          {', '.join(texts)}"


def measured_members(report: RunReport) -> Row:
    """The members of the JSON document on how the run was measured."""
    from kgrun.cli.render.documents import members

    return {
        "cache": report.cache,
        "issue_ns": report.issue_ns,
        "wall_ns": report.wall_ns,
        "floors_ns": dict(report.floors_ns),
        "balance": members(report.balance) if report.balance is not None else None,
        "not_replayed": report.not_replayed,
        "streams": members(report.streams) if report.streams is not None else None,
        "gpu_states": [members(state) for state in report.gpu_states],
        "roofline": members(report.roofline) if report.roofline is not None else None,
        "advice": advice_rows(report),
    }


def advice_rows(report: RunReport) -> list[Row]:
    """Advice: `code` and `message`."""
    from kgrun.runtime.advice import advice

    return [{"code": each.code, "message": each.message} for each in advice(report)]


def timed_members(step: StepReport, report: RunReport) -> Row:
    """The members of a kernel's row on how far its time can be trusted and how near it comes to the peaks."""
    memory, compute = shares(step, report)
    bound = {"floor_ns": step.floor_ns, "overhead_bound": step.overhead_bound}
    return bound | {"memory_share": memory, "compute_share": compute}


def shares(step: StepReport, report: RunReport) -> tuple[float | None, float | None]:
    """Parts of the device's measured peaks that a kernel reached: of the memory's and of float32 arithmetic's."""
    peak = report.roofline
    if peak is None or step.times is None or not step.times.median:
        return None, None
    ns = step.times.median
    memory = None if step.nbytes is None else round(step.nbytes * 1e9 / ns / peak.bytes_per_s, 4)
    compute = None if step.flops is None else round(step.flops * 1e9 / ns / peak.flops_per_s, 4)
    return memory, compute


def shares_text(step: StepReport, report: RunReport) -> str:
    """The larger share in percent, and of what: `87 mem`, `12 fp32`; `-` where unknown."""
    memory, compute = shares(step, report)
    if memory is None and compute is None:
        return "-"
    if compute is None or (memory is not None and memory >= compute):
        return f"{100 * (memory or 0):.0f} mem"
    return f"{100 * compute:.0f} fp32"
