"""Whether the times of the steps add up to that of a whole run, and what the difference is made of."""

from __future__ import annotations

from collections.abc import Sequence

from kgrun.runtime.report import Balance, StepReport

WITHIN = 0.03
LEAST_NS = 1_000  # two readings of a GPU's timer are half a microsecond apart at best


def balance(
    steps: Sequence[StepReport],
    total_ns: int,
    after: Sequence[Sequence[int]],
    *,
    start_ns: int = 0,
    ramp_ns: int = 0,
    run_ns: int = 0,
) -> Balance | None:
    """The account of a run; None where a step was not timed.

    A run is expected to take `start_ns` before its first step, and each step its own time less the launch ramp that the
    step before it hides, and what different steps in a row take more than each repeated. Steps that need not wait for
    each other may run side by side: then a run may be as short as the longest chain of steps.

    Args:
        after: for each step the earlier steps it waits for.
        run_ns: of all steps in a row, measured without what comes before the first; 0 where that was not measured.
    """
    times = [step.times.median for step in steps if step.times is not None]
    if not times or len(times) != len(steps):
        return None
    parts = [max(t - ramp_ns, 0) for t in times]
    ends: list[int] = []
    for part, before in zip(parts, after, strict=True):
        ends.append(part + max((ends[i] for i in before), default=0))
    between = run_ns - sum(parts) if run_ns else 0
    in_a_row = start_ns + sum(parts) + between
    longest = in_a_row if max(ends) == sum(parts) else min(start_ns + max(ends), in_a_row)
    slack = max(round(WITHIN * total_ns), LEAST_NS)
    return Balance(
        kernels_ns=sum(times),
        ramps_ns=sum(times) - sum(parts),
        between_ns=between,
        start_ns=start_ns,
        expected_ns=in_a_row,
        longest_chain_ns=longest,
        total_ns=total_ns,
        difference_ns=total_ns - in_a_row,
        difference=_name(total_ns, in_a_row, longest, slack, start_ns),
        consistent=longest - slack <= total_ns <= in_a_row + slack,
    )


def _name(total: int, in_a_row: int, longest: int, slack: int, start: int) -> str:
    if total >= in_a_row:
        return "gaps"
    if not start:
        return "instrumentation"  # marks around each step make it longer than it is in a run
    return "side by side" if longest < in_a_row and total >= longest - slack else "faster together"
