"""Packing: plain records in, offsets and a certificate out. Nothing here knows of graphs or devices."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .bounds import Peak, lower_bound, peak_section
from .pack import pack
from .problem import Group, PackingError, Problem, ProblemError
from .result import METHODS, Packing, PackOptions, Violation, ViolationKind
from .verify import verify

if TYPE_CHECKING:
    from .chunks import chunk_sizes
    from .csvfile import CsvError, read_minimalloc_csv, write_minimalloc_csv
    from .infeasible import Change, Infeasible, explain_infeasible

# What most runs never need, imported when it is first asked for.
_LATER = {
    "chunk_sizes": "chunks",
    "CsvError": "csvfile",
    "read_minimalloc_csv": "csvfile",
    "write_minimalloc_csv": "csvfile",
    "Change": "infeasible",
    "Infeasible": "infeasible",
    "explain_infeasible": "infeasible",
}

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


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
