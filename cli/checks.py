"""`--check`, `--schedule` and `--allow-skip`: words to settings, and what a checked run's report ends with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import KgrunError

if TYPE_CHECKING:
    from kgrun.runtime.report import Comparison, RunReport


def check_options(check: Sequence[str] | None, schedule: str, allow_skip: bool) -> dict[str, Any]:
    """Arguments of a Session; UsageError for names that are none, before anything is loaded."""
    if not check and schedule == "forward":
        return {"allow_skip": allow_skip}
    from kgrun.runtime.checks.names import check_schedule, split_checks

    names = tuple(name for text in check or () for name in split_checks(text))
    return {"checks": names, "schedule": check_schedule(schedule), "allow_skip": allow_skip}


def without_result(comparison: Comparison) -> Comparison:
    """The comparison of an output that a skipped kernel was to make: never equal, whatever its bytes hold."""
    reason = "not computed: a kernel was skipped"
    return replace(comparison, ok=False, mismatched=comparison.size, max_abs=None, max_rel=None, reason=reason)


def judge_checks(report: RunReport, error: KgrunError | None) -> tuple[RunReport, KgrunError | None]:
    """The report, and the error that ends the command: what the checks found, then outputs that differ."""
    if not report.findings:
        return report, error
    from kgrun.runtime.checks.findings import failure

    found = failure(report.findings)
    if found is not None and error is not None:
        found.others = (*found.others, error)
    return report, found
