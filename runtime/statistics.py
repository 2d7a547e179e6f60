"""Statistics of time samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kgrun.runtime.report import TimeStats


def time_stats(samples: Sequence[int]) -> TimeStats | None:
    """Statistics of nanosecond samples, None without any. Percentiles are nearest-rank."""
    if not samples:
        return None
    ordered = sorted(samples)
    count = len(ordered)
    mean = sum(ordered) / count
    deviation = math.sqrt(sum((s - mean) ** 2 for s in ordered) / count)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) // 2

    def percentile(p: int) -> int:
        return ordered[max(math.ceil(count * p / 100) - 1, 0)]

    return TimeStats(
        min=ordered[0],
        median=middle,
        mean=round(mean),
        p95=percentile(95),
        p99=percentile(99),
        max=ordered[-1],
        cv=deviation / mean if mean else 0.0,
        count=count,
    )
