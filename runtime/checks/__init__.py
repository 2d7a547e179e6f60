"""Checks of a run: which there are, what they watch, and what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.graphs.late import late_names

if TYPE_CHECKING:
    from kgrun.runtime.checks.findings import Finding, Other, failure
    from kgrun.runtime.checks.names import CHECKS, CheckSettings, check_settings
    from kgrun.runtime.checks.watch import Watch

__all__ = ["CHECKS", "CheckSettings", "Finding", "Other", "Watch", "check_settings", "failure"]

# Late: few runs are checked.
__getattr__ = late_names(
    __name__,
    {
        "names": "CHECKS CheckSettings check_settings",
        "findings": "Finding Other failure",
        "watch": "Watch",
    },
)
