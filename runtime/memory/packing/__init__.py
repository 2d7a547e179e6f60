"""Packing: plain records in, offsets and a certificate out. Nothing here knows of graphs or devices."""

from .bounds import Peak, lower_bound, peak_section
from .pack import pack
from .problem import Group, PackingError, Problem, ProblemError
from .result import METHODS, Packing, PackOptions, Violation, ViolationKind
from .verify import verify

__all__ = [
    "METHODS",
    "Group",
    "PackOptions",
    "Packing",
    "PackingError",
    "Peak",
    "Problem",
    "ProblemError",
    "Violation",
    "ViolationKind",
    "lower_bound",
    "pack",
    "peak_section",
    "verify",
]
