"""Checks of a run: which there are, what they watch, and what they found."""

from kgrun.runtime.checks.findings import Finding, Other, failure
from kgrun.runtime.checks.names import CHECKS, CheckSettings, check_settings
from kgrun.runtime.checks.watch import Watch

__all__ = ["CHECKS", "CheckSettings", "Finding", "Other", "Watch", "check_settings", "failure"]
