"""Checks of a run: which there are, what they watch, and what they found."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.runtime.checks.findings import Finding, Other, failure
    from kgrun.runtime.checks.names import CHECKS, CheckSettings, check_settings
    from kgrun.runtime.checks.watch import Watch

__all__ = ["CHECKS", "CheckSettings", "Finding", "Other", "Watch", "check_settings", "failure"]

_MEMBERS = {
    "names": ("CHECKS", "CheckSettings", "check_settings"),
    "findings": ("Finding", "Other", "failure"),
    "watch": ("Watch",),
}
_HOMES = {name: home for home, names in _MEMBERS.items() for name in names}


def __getattr__(name: str) -> Any:
    # Late: few runs are checked.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
