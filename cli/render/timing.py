"""The timing part of the text report: a row a kernel, the total, outputs and comparisons; and the CSV's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.documents import output_row, rate, timed_sum
from kgrun.cli.render.table import Table
from kgrun.cli.render.text import count_text, percent, rate_text, shape_text, time_text

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
    table = kernel_table(report.steps)
    cut = table.cut(verbose)[1] is not None
    yield kernel_table(report.steps, by_time=True) if cut else table
    yield ""
    yield from total_lines(report)


def kernel_table(steps: tuple[StepReport, ...], *, by_time: bool = False) -> Table:
    """A row each step; the cumulative share follows the rows' order."""
    rows = []
    total = timed_sum(steps) or 0
    running = 0
    order = sorted(steps, key=lambda s: -s.times.median if s.times else 0) if by_time else steps
    for step in order:
        median = step.times.median if step.times else None
        running += median or 0
        rows.append(
            (
                step.name,
                step.op,
                launch_text(step.grid, step.block),
                time_text(median),
                time_text(step.times.p95 if step.times else None),
                percent(median, total) if median is not None else "-",
                percent(running, total),
                rate_text(rate(step.nbytes, step), "B/s"),
                rate_text(rate(step.flops, step), "FLOP/s"),
            )
        )
    columns = ("kernel", "op", "grid × block", ">median", ">p95", ">%", ">cum %", ">memory", ">compute")
    methods = ", ".join(sorted({step.method for step in steps if step.times is not None and step.method}))
    title = "Kernels, slowest first" if by_time else "Kernels"
    return Table(
        f"{title} ({methods})" if methods else title,
        columns,
        rows,
        rest="kernels",
        optional=(">p95", ">cum %", ">compute", ">memory", "grid × block"),
    )


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
    """One whole run, what lies between the kernels, and the transfers."""
    total, kernels = report.total, timed_sum(report.steps)
    if total is not None:
        yield (
            f"  total        median {time_text(total.median)}, min {time_text(total.min)}, p95 {time_text(total.p95)},"
            f" max {time_text(total.max)}, CV {100 * total.cv:.1f} %"
        )
    if total is not None and kernels is not None:
        gap = total.median - kernels
        what = "gaps" if gap >= 0 else "overlap and instrumentation"
        yield f"  of which     kernels {time_text(kernels)}, {what} {time_text(abs(gap))}"
    for name, transfer in (("upload", report.upload), ("download", report.download)):
        if transfer.nbytes:
            speed = transfer.nbytes * 1e9 / transfer.ns if transfer.ns else None
            yield f"  {name:<12} {transfer.nbytes:,} bytes in {time_text(transfer.ns)} ({rate_text(speed, 'B/s')})"


def output_table(outputs: dict[str, np.ndarray[Any, Any]]) -> Table:
    """Outputs: type, digest, and the value of small ones."""
    rows = []
    for name, array in outputs.items():
        row = output_row(name, array)
        value = str(row["value"]) if "value" in row else range_text(array)
        rows.append((name, shape_text(str(array.dtype), array.shape), value, row["sha256"][:16]))
    return Table("Outputs", ("output", "type", "value", "sha256"), rows, rest="outputs")


def range_text(array: np.ndarray[Any, Any]) -> str:
    """`min … max, mean` over the finite elements, and how many are not finite."""
    import numpy as np

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
            _difference(each.max_abs),
            _difference(each.max_rel),
            each.reason or "",
        )
        for each in comparisons
    ]
    columns = ("output", "result", ">outside tolerance", ">max abs", ">max rel", "reason")
    return Table("Expected", columns, rows, rest="outputs")


def _difference(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


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
            "count": step.times.count if step.times else None,
            **{f"{key}_ns": getattr(step.times, key, None) for key in ("min", "median", "mean", "p95", "p99", "max")},
            "nbytes": step.nbytes,
            "flops": step.flops,
        }
        for step in report.steps
    ]
