"""`--cold-report`: where the time from the start of the process to the first result goes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.cli.entry import STARTED
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.runtime.report import RunReport

# Phases of a session up to the first result, in order; what it does afterwards is no part of the start.
_SESSION = (
    "bind", "open device", "lower", "plan", "allocate", "compile", "load", "capture", "upload", "first run",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColdRow:
    """One phase: nanoseconds, and what is worth saying of it."""

    phase: str
    ns: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ColdReport:
    """The phases, and what was compiled: `runtime.compile.nvrtc.CompileRow` each."""

    rows: tuple[ColdRow, ...]
    compiled: tuple[Any, ...]

    @property
    def total_ns(self) -> int:
        """Sum of the phases."""
        return sum(row.ns for row in self.rows)

    def document(self) -> dict[str, Any]:
        """The member `cold` of the JSON document."""
        return {
            "total_ns": self.total_ns,
            "phases": [{"phase": row.phase, "ns": row.ns, "note": row.note or None} for row in self.rows],
            "compiled": [
                {"name": row.name, "ns": row.ns, "kind": row.kind, "from_cache": row.from_cache}
                for row in self.compiled
            ],
        }


def cold_report(report: RunReport, before: Mapping[str, int], imports_ns: int) -> ColdReport:
    """What is known after a run.

    Args:
        before: nanoseconds by phase, before the session began.
        imports_ns: from the program's first line to its command.
    """
    from kgrun.runtime.compile.nvrtc import compiled_here
    from kgrun.runtime.program import Launch

    # Measuring compiles kernels of its own, later.
    labels = {step.work.code.label for step in report.program.steps if isinstance(step.work, Launch)}
    compiled = tuple(row for row in compiled_here() if row.name in labels or not row.name.startswith("kgrun:"))
    rows = []
    python = interpreter_ns()
    if python is not None:
        rows.append(ColdRow("start Python", python, "±10 ms"))
    rows.append(ColdRow("import, read options", imports_ns))
    rows += [ColdRow(name, ns) for name, ns in before.items()]
    notes = {
        "compile": _compile_note(compiled),
        "upload": f"{report.upload.nbytes:,} bytes",
        "capture": f"not one CUDA graph: {report.not_replayed}" if report.not_replayed else "",
    }
    for name in _SESSION:
        if name in report.phases_ns:
            rows.append(ColdRow(name, report.phases_ns[name], notes.get(name, "")))
    return ColdReport(tuple(rows), compiled)


def _compile_note(compiled: tuple[Any, ...]) -> str:
    if not compiled:
        return "nothing to compile"
    hits = sum(row.from_cache for row in compiled)
    return f"{hits} from the cache, {len(compiled) - hits} compiled"


def interpreter_ns() -> int | None:
    """From the process's start to kgrun's first line, in steps of the system's clock tick; None where unknown."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc_pid_stat(5), in ticks since boot
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    before = round((now - started) * 1e9) - (time.perf_counter_ns() - STARTED)
    return before if before > 0 else None
