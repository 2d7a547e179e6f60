"""Two reports side by side: what became slower or larger, beyond the noise of both."""

from kgrun.runtime.diff.compare import Difference, OutputChange, compare_reports
from kgrun.runtime.diff.document import Report, load_report, read_report
from kgrun.runtime.diff.rows import METRICS, Limits, Row, Verdict

__all__ = [
    "METRICS",
    "Difference",
    "Limits",
    "OutputChange",
    "Report",
    "Row",
    "Verdict",
    "compare_reports",
    "load_report",
    "read_report",
]
