"""What a report's numbers say to do next, and what makes them doubtful."""

from __future__ import annotations

from collections.abc import Iterator

from kgrun.graphs.bound import Warning
from kgrun.runtime.balance import LEAST_NS, WITHIN
from kgrun.runtime.program import MemoryClass
from kgrun.runtime.report import Balance, GpuState, RunReport

ENQUEUE_SHARE = 0.8
NOISY_CV = 0.025
_CLOCK_SHARE = 0.02
_LEAST_SAMPLES = 5


def advice(report: RunReport) -> Iterator[Warning]:
    """Lines of advice on a run, each with a stable code."""
    total = report.total
    if total is None or report.device.kind == "cpu":
        return
    if report.issue_ns is not None and report.issue_ns > ENQUEUE_SHARE * total.median:
        one_by_one = f"steps are issued one by one ({report.not_replayed})"
        how = "more work in a run would use the GPU better" if report.not_replayed is None else one_by_one
        text = f"the host takes {_us(report.issue_ns)} to start a run of {_us(total.median)}; {how}"
        yield Warning("A-ENQUEUE", f"enqueue-bound: {text}")
    moved = _transfer_ns(report)
    if moved > total.median:
        text = f"inputs and outputs take {_us(moved)} to copy, a run {_us(total.median)}"
        yield Warning("A-TRANSFER", f"transfer-bound: {text}")
    if total.count >= _LEAST_SAMPLES and total.cv > NOISY_CV:
        text = f"runs vary by {100 * total.cv:.1f} % (CV); --duration or more --iterations help"
        yield Warning("A-NOISY", f"noisy: {text}")


def doubts(report: RunReport) -> Iterator[Warning]:
    """Warnings on what makes the times doubtful."""
    found = report.balance
    if found is not None and found.start_ns and report.not_replayed is None:
        yield from _sum_doubts(found)
    states = report.gpu_states
    if states:
        yield from _clock_doubts(states[0], states[-1])


def _sum_doubts(found: Balance) -> Iterator[Warning]:
    if not found.consistent:
        percent = 100 * abs(found.difference_ns) / found.total_ns if found.total_ns else 0
        yield Warning(
            "W-SUM",
            f"the kernels' times, in a row, make {_us(found.expected_ns)}, but a run takes {_us(found.total_ns)}: "
            f"{percent:.1f} % apart ({found.difference})",
        )
    alone, together = found.kernels_ns - found.ramps_ns, found.kernels_ns - found.ramps_ns + found.between_ns
    if abs(found.between_ns) > max(WITHIN * found.total_ns, LEAST_NS):
        yield Warning(
            "W-ALONE",
            f"each kernel repeated takes {_us(alone)} in sum, all of them in a row {_us(together)}: in a run they find "
            "other data in the cache",
        )


def _clock_doubts(first: GpuState, last: GpuState) -> Iterator[Warning]:
    reasons = tuple(dict.fromkeys((*first.throttle, *last.throttle)))
    if reasons:
        yield Warning("W-THROTTLE", f"the GPU held its clocks down while it was measured: {', '.join(reasons)}")
    for name, a, b in (("SM", first.sm_mhz, last.sm_mhz), ("memory", first.memory_mhz, last.memory_mhz)):
        if a and b and abs(a - b) > _CLOCK_SHARE * max(a, b):
            yield Warning("W-CLOCK", f"the {name} clock moved from {a} to {b} MHz while it was measured")


def _transfer_ns(report: RunReport) -> int:
    """Nanoseconds to copy the inputs in, at the rate of all uploads, and the outputs back."""
    inputs = sum(b.nbytes for b in report.program.buffers if b.memory_class is MemoryClass.INPUT)
    up = report.upload
    return (inputs * up.ns // up.nbytes if up.nbytes else 0) + report.download.ns


def _us(ns: int) -> str:
    return f"{ns / 1000:.1f} µs"
