"""The timing part of the text report: a row a kernel, the total, outputs and comparisons; and the CSV's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.documents import output_row, rate, timed_sum
from kgrun.cli.render.feeds import feed_lines
from kgrun.cli.render.measured import measured_lines, shares_text
from kgrun.cli.render.table import Table
from kgrun.cli.render.text import count_text, figure_text, percent, rate_text, shape_text, time_text

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.bound import Dim3
    from kgrun.runtime.report import Comparison, RunReport, StepReport


def head_line(report: RunReport) -> str:
    """What ran, where, how often."""
    device = report.device
    place = device.name if device.kind == "cpu" else f"{device.kind}:{device.index} {device.name} ({device.arch})"
    runs = count_text(report.iterations, "iteration")
    warm = f" after {count_text(report.warmup, 'warm-up')}" if report.warmup else ""
    return f"{report.program.graph.source.name} on {place}: {runs}{warm}"


def timing_sections(report: RunReport, verbose: bool) -> Iterator[Table | str]:
    """Kernels, slowest first where the table is cut and in the order of the run elsewhere; then the total."""
    table = kernel_table(report, verbose)
    cut = table.cut(verbose)[1] is not None
    yield kernel_table(report, verbose, by_time=True) if cut else table
    yield ""
    yield from total_lines(report)


def kernel_table(report: RunReport, verbose: bool = False, *, by_time: bool = False) -> Table:
    """A row each step; the cumulative share follows the rows' order. Columns that would say nothing are left out."""
    steps = report.steps
    total = timed_sum(steps) or 0
    order = sorted(steps, key=lambda s: -s.times.median if s.times else 0) if by_time else steps
    running = 0
    cells: dict[str, list[str]] = {}
    for step in order:
        running += step.times.median if step.times else 0
        for column, text in _kernel_cells(step, report, total, running).items():
            cells.setdefault(column, []).append(text)
    methods = sorted({step.method for step in steps if step.times is not None and step.method})
    without = set() if verbose else {">min", ">mean", ">p99", ">CV %"}
    without |= {"method"} if len(methods) < 2 else set()
    without |= {column for column in (">% peak", "note") if not set(cells.get(column, ())) - {"-", ""}}
    columns = [column for column in _KERNEL_COLUMNS if column not in without]
    rows = list(zip(*(cells.get(column, []) for column in columns), strict=True))
    title = "Kernels, slowest first" if by_time else "Kernels"
    return Table(
        f"{title} ({', '.join(methods)})" if methods else title,
        columns,
        rows,
        rest="kernels",
        optional=[column for column in _KERNEL_OPTIONAL if column in columns],
    )


_KERNEL_COLUMNS = (
    "kernel", "op", "grid × block", ">median", ">min", ">mean", ">p95", ">p99", ">CV %", ">%", ">cum %", ">memory",
    ">compute", ">% peak", "method", "note",
)  # fmt: skip
_KERNEL_OPTIONAL = (
    ">CV %", ">p99", ">mean", ">min", ">p95", ">cum %", ">compute", ">memory", ">% peak", "method", "grid × block",
)  # fmt: skip


def _kernel_cells(step: StepReport, report: RunReport, total: int, running: int) -> dict[str, str]:
    """A step's cells by column."""
    times = step.times
    figures = {name: time_text(getattr(times, name, None)) for name in ("median", "min", "mean", "p95", "p99")}
    return {f">{name}": text for name, text in figures.items()} | {
        "kernel": step.name,
        "op": step.op,
        "grid × block": launch_text(step.grid, step.block),
        ">CV %": f"{100 * times.cv:.1f}" if times else "-",
        ">%": percent(times.median, total) if times else "-",
        ">cum %": percent(running, total),
        ">memory": rate_text(rate(step.nbytes, step), "B/s"),
        ">compute": rate_text(rate(step.flops, step), "FLOP/s"),
        ">% peak": shares_text(step, report),
        "method": step.method,
        "note": "overhead-bound" if step.overhead_bound else "",
    }


def launch_text(grid: Dim3 | None, block: Dim3 | None) -> str:
    """`(4,1,1)×(256,1,1)` without trailing ones: `4 × 256`."""
    if grid is None or block is None:
        return "-"
    return f"{_dim3_text(grid)} × {_dim3_text(block)}"


def _dim3_text(dims: Dim3) -> str:
    kept = list(dims)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return ",".join(map(str, kept))


def total_lines(report: RunReport) -> Iterator[str]:
    """One whole run, what it is made of and what its time is worth, and the transfers."""
    total = report.total
    if total is not None:
        names = ("median", "min", "mean", "p95", "p99", "max")
        values = ", ".join(f"{name} {time_text(getattr(total, name))}" for name in names)
        yield f"  total        {values}, CV {100 * total.cv:.1f} %"
    yield from measured_lines(report)
    yield from feed_lines(report)
    for name, transfer in (("upload", report.upload), ("download", report.download)):
        if transfer.nbytes:
            speed = transfer.nbytes * 1e9 / transfer.ns if transfer.ns else None
            yield f"  {name:<12} {transfer.nbytes:,} bytes in {time_text(transfer.ns)} ({rate_text(speed, 'B/s')})"


def output_table(outputs: dict[str, np.ndarray[Any, Any]]) -> Table:
    """Outputs: type, digest, and the value of small ones."""
    rows = []
    for name, array in outputs.items():
        row = output_row(name, array)
        value = value_text(row["value"], array.tolist()) if "value" in row else range_text(array)
        rows.append((name, shape_text(str(array.dtype), array.shape), value, row["sha256"][:16]))
    return Table("Outputs", ("output", "type", "value", "sha256"), rows, rest="outputs")


def value_text(value: Any, element: Any) -> str:
    """Elements as a document has them, and the names of those for which it has null: NaN and the infinities."""
    if isinstance(value, list):
        return f"[{', '.join(value_text(*pair) for pair in zip(value, element, strict=True))}]"
    return str(float(element)) if value is None else str(value)


def range_text(array: np.ndarray[Any, Any]) -> str:
    """`min … max, mean` over the finite elements, and how many are not finite."""
    import numpy as np

    if array.dtype.kind in "fiu" and np.isfinite(array).all():
        return f"{float(array.min()):.6g} … {float(array.max()):.6g}, mean {array.mean(dtype=np.float64):.6g}"
    wide = array.astype(np.float64).reshape(-1)
    good = wide[np.isfinite(wide)]
    text = f"{good.min():.6g} … {good.max():.6g}, mean {good.mean():.6g}" if good.size else "nothing finite"
    bad = wide.size - good.size
    return f"{text}, {bad:,} NaN or infinite" if bad else text


def comparison_table(comparisons: tuple[Comparison, ...]) -> Table:
    """Outputs against their expected values."""
    rows = [
        (
            each.name,
            "equal" if each.ok else "DIFFERS",
            f"{each.mismatched:,} of {each.size:,}",
            figure_text(each.max_abs),
            figure_text(each.max_rel),
            each.reason or "",
        )
        for each in comparisons
    ]
    columns = ("output", "result", ">outside tolerance", ">max abs", ">max rel", "reason")
    return Table("Expected", columns, rows, rest="outputs")


def kernel_rows(report: RunReport) -> list[dict[str, Any]]:
    """The CSV of a run: a row each kernel, times in nanoseconds."""
    return [
        {
            "name": step.name,
            "op": step.op,
            "stream": step.stream,
            "grid": step.grid,
            "block": step.block,
            "shared_bytes": step.shared,
            "method": step.method,
            "floor_ns": step.floor_ns,
            "overhead_bound": step.overhead_bound,
            "count": step.times.count if step.times else None,
            **{f"{key}_ns": getattr(step.times, key, None) for key in ("min", "median", "mean", "p95", "p99", "max")},
            "nbytes": step.nbytes,
            "flops": step.flops,
        }
        for step in report.steps
    ]
