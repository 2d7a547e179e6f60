"""A report's JSON document, as far as two of them can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kgrun.graphs.errors import GraphError, Place
from kgrun.graphs.records import dataclass
from kgrun.runtime.report import TimeStats

MAX_BYTES = 1 << 30

_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Real = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Times:
    """Times in nanoseconds: a summary, and the samples in the order in which they were taken where they are known."""

    stats: TimeStats
    samples: tuple[int, ...] = ()


class _Part(BaseModel):
    # Members may be added to reports: what is not compared is not looked at.
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Stats(_Part):
    min: _Count
    median: _Count
    mean: _Count
    p95: _Count
    p99: _Count
    max: _Count
    cv: _Real
    count: _Count


class KernelRow(_Part):
    """One step of a report."""

    name: str
    op: str = ""
    grid: list[int] | None = None
    block: list[int] | None = None
    time_ns: _Stats | None = None
    samples_ns: list[_Count] = []
    method: str = ""
    nbytes: _Count | None = None
    shared_bytes: _Count | None = None

    @property
    def times(self) -> Times | None:
        """Its times, None where it was not timed."""
        return _times(self.time_ns, self.samples_ns)


class OutputRow(_Part):
    """One output of a report."""

    name: str
    dtype: str
    shape: list[int]
    sha256: str


class Device(_Part):
    """The device of a report."""

    kind: str = ""
    name: str = ""
    arch: str | None = None
    total_memory_bytes: int = 0
    versions: dict[str, str] = {}


class _Graph(_Part):
    name: str = ""
    file: str | None = None


class Memory(_Part):
    """The sums of the memory part of a report; None where it does not say them."""

    static_bytes: _Count | None = None
    dynamic_bytes: _Count | None = None
    peak_bytes: _Count | None = None
    lower_bound_bytes: _Count | None = None
    no_reuse_bytes: _Count | None = None
    measured_peak_bytes: _Count | None = None


class Report(_Part):
    """An `execute` or `plan-memory` document."""

    schema_version: int
    ok: bool = True
    kgrun: str = ""
    graph: _Graph = _Graph()
    dims: dict[str, int] = {}
    target: str = ""
    device: Device | None = None
    iterations: int | None = None
    outputs: list[OutputRow] = []
    kernels: list[KernelRow] = []
    total_ns: _Stats | None = None
    total_samples_ns: list[_Count] = []
    memory: Memory

    @property
    def total(self) -> Times | None:
        """Times of whole runs."""
        return _times(self.total_ns, self.total_samples_ns)

    @property
    def bytes(self) -> dict[str, int]:
        """The sums of the memory part by name."""
        return {name: value for name, value in self.memory if value is not None}


def _times(stats: _Stats | None, samples: list[int]) -> Times | None:
    if stats is None or not stats.count:
        return None
    return Times(TimeStats(**stats.model_dump()), tuple(samples) if len(samples) == stats.count else ())


def read_report(data: bytes, name: str) -> Report:
    """The report in `data`, which messages call `name`. GraphError KG391 when it is none."""
    import json

    if len(data) > MAX_BYTES:
        raise GraphError(f"the file has more than {MAX_BYTES:,} bytes", code="KG391", where=name)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        text = str(error).partition("\n")[0]
        raise GraphError(f"no JSON document: {text}", code="KG391", where=name, help=_HELP) from None
    many = next((key for key in ("graphs", "sizes") if isinstance(document, Mapping) and key in document), None)
    if many is not None:  # its kernels are those of its runs: none would be seen to be slower
        help = "compare reports of one graph at one size"
        raise GraphError(f"a report on several {many}", code="KG391", where=name, help=help)
    if not isinstance(document, Mapping) or "memory" not in document:
        raise _no_report(document, name)
    if (version := document.get("schema_version")) != 1:
        raise GraphError(f"schema_version is {version!r}, this kgrun reads 1", code="KG391", where=name)
    try:
        return Report.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = Place(name, tuple(first["loc"]))
        raise GraphError(f"not a report of kgrun: {first['msg']}", code="KG391", where=place, help=_HELP) from None


_HELP = "compare what `kgrun execute --json` or `kgrun plan-memory --json` printed"


def _no_report(document: Any, name: str) -> GraphError:
    error = document.get("error") if isinstance(document, Mapping) else None
    if isinstance(error, Mapping) and document.get("ok") is False:
        what = f"the command that made this report failed: {error.get('code')}: {error.get('message')}"
        return GraphError(what, code="KG391", where=name, help="run it again; a failed run has nothing to compare")
    return GraphError("not a report of kgrun", code="KG391", where=name, help=_HELP)


def load_report(file: str) -> Report:
    """The report in `file`; "-" is standard input. GraphError KG391 when it cannot be read or is none."""
    import sys

    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)  # what is larger, or never ends, is not read to its end
    except OSError as error:
        raise GraphError(f"cannot be read: {error.strerror or error}", code="KG391", where=file) from None
    return read_report(data, "<stdin>" if file == "-" else file)
