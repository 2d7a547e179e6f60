"""Packing: plain records in, offsets and a certificate out. Nothing here knows of graphs or devices."""

from .bounds import Peak, lower_bound, peak_section
from .chunks import chunk_sizes
from .csvfile import CsvError, read_minimalloc_csv, write_minimalloc_csv
from .infeasible import Change, Infeasible, explain_infeasible
from .pack import pack
from .problem import Group, PackingError, Problem, ProblemError
from .result import METHODS, Packing, PackOptions, Violation, ViolationKind
from .verify import verify

__all__ = [
    "METHODS",
    "Change",
    "CsvError",
    "Group",
    "Infeasible",
    "PackOptions",
    "Packing",
    "PackingError",
    "Peak",
    "Problem",
    "ProblemError",
    "Violation",
    "ViolationKind",
    "chunk_sizes",
    "explain_infeasible",
    "lower_bound",
    "pack",
    "peak_section",
    "read_minimalloc_csv",
    "verify",
    "write_minimalloc_csv",
]
