"""`kgrun diff`: two reports compared, with the noise of both in mind; exit 10 where the second is worse."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kgrun.cli import options as opt
from kgrun.cli.output import Output, check_places
from kgrun.graphs.errors import GraphError, KgrunError, Regression, UsageError, did_you_mean

if TYPE_CHECKING:
    from kgrun.runtime.diff import Difference, Row

_RATIO = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(%|x)?")
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,12})?)\s*(ns|us|µs|ms|s|)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "": 10**9}

Old = Annotated[str, opt.argument("A", "Report of `execute --json` or `plan-memory --json`; - is standard input.")]
New = Annotated[str, opt.argument("B", "The report to judge by it.")]
Metrics = Annotated[
    str, opt.option("--metric", metavar="NAMES", help="What is judged: median,mean,min,p95,p99,peak_bytes,…")
]
MaxRegress = Annotated[
    str, opt.option("--max-regress", metavar="5%", help="Most that B may be worse: 5%, or the factor 1.05.")
]
Floor = Annotated[
    str | None, opt.option("--floor", metavar="TIME", help="Smallest change in time that counts: 500ns, 2us.")
]
Markdown = Annotated[
    str | None, opt.option("--markdown", env=False, metavar="FILE", help="Write a summary for a CI page.")
]
JUnit = Annotated[str | None, opt.option("--junit", env=False, metavar="FILE", help="Write a test case a row (XML).")]


def command(
    a: Old,
    b: New,
    metric: Metrics = "median,peak_bytes",
    max_regress: MaxRegress = "5%",
    floor: Floor = None,
    strict: opt.Strict = False,
    json: opt.Json = False,
    csv: opt.Csv = None,
    markdown: Markdown = None,
    junit: JUnit = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
) -> None:
    """Compare two reports; exit 10 where B is worse than A by more than --max-regress and more than noise."""
    output = Output(json, csv, quiet, verbose, no_color)
    metrics, bound = parse_metrics(metric), parse_bound(max_regress)
    floor_ns = parse_time(floor, "--floor") if floor is not None else None
    check_places((csv, markdown, junit))
    if a == b == "-":
        raise UsageError("A and B cannot both be standard input", code="KG240", help="give one of them a file")
    from kgrun.cli.render import diff as part
    from kgrun.runtime.diff import compare_reports, load_report

    sides = part.Sides(a, b, load_report(a), load_report(b))
    found = compare_reports(sides.a, sides.b, metrics=metrics, bound=bound, floor_ns=floor_ns)
    if strict and found.warnings:
        raise refused(found)
    error = regression(found)
    if markdown is not None:
        from kgrun.cli.render.diff_markdown import write_markdown

        write_markdown(Path(markdown), sides, found)
    if junit is not None:
        from kgrun.cli.output import write_text
        from kgrun.cli.render.diff_junit import to_junit

        write_text(Path(junit), to_junit(sides, found))
    output.emit(
        document=lambda: part.diff_document(sides, found),
        report=lambda: part.diff_sections(sides, found, verbose),
        rows=lambda: [part.row_fields(row) for row in found.rows],
        error=error,
    )


def regression(found: Difference) -> KgrunError | None:
    """The error that ends the command where rows regressed: it names the worst of them."""
    from kgrun.cli.render.diff import change_text

    bad = found.failures
    if not bad:
        return None

    def named(row: Row) -> str:
        return f"{row.name} {row.metric} {change_text(row)}"

    listed = "; ".join(named(row) for row in bad[:5]) + ("; …" if len(bad) > 5 else "")
    count = "1 row" if len(bad) == 1 else f"{len(bad)} rows"
    rows = [{"kind": row.kind, "name": row.name, "metric": row.metric} for row in bad]
    return Regression(
        f"{count} of {len(found.rows)} regressed by more than {100 * found.limits.bound:g} %: {listed}",
        help="--max-regress allows more, --metric judges other numbers",
        details={"rows": rows},
    )


def refused(found: Difference) -> GraphError:
    """What --strict makes of the warnings."""
    first, *others = (GraphError(warning.message, code="KG399", help=_STRICT) for warning in found.warnings)
    first.others = tuple(others)
    return first


_STRICT = "compare runs of one graph on one device, or leave --strict out"


def parse_metrics(text: str) -> tuple[str, ...]:
    """`median,peak_bytes` as names, each once."""
    from kgrun.runtime.diff import METRICS

    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in names:
        if name not in METRICS:
            help = did_you_mean(name, METRICS) or f"metrics: {', '.join(METRICS)}"
            raise UsageError(f"--metric: no metric {name!r}", code="KG253", help=help)
    if not names:
        raise UsageError("--metric names nothing", code="KG253", help=f"metrics: {', '.join(METRICS)}")
    return names


def parse_bound(text: str) -> float:
    """`5%` and `1.05` (a factor, also `1.05x`) as 0.05."""
    match = _RATIO.fullmatch(text.strip())
    help = "write a percentage, 5%, or a factor of 1 or more, 1.05 or 2x"
    if match is None:
        raise UsageError(f"--max-regress: {text!r} is neither a percentage nor a factor", code="KG253", help=help)
    value, unit = Decimal(match[1]), match[2]
    if unit == "%":
        return float(value / 100)
    # 5 may mean 5 % or five times: the slip would let any regression pass.
    if value < 1 or (unit is None and value >= 2):
        raise UsageError(f"--max-regress: is {text!r} a percentage or a factor?", code="KG253", help=help)
    return float(value - 1)


def parse_time(text: str, option: str) -> int:
    """Nanoseconds: `500ns`, `2us`, `1ms`; without a unit in seconds."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option}: {text!r} is no time", code="KG253", help="for example 500ns, 2us, 1ms, 0.001")
    return math.ceil(Decimal(match[1]) * _UNITS[match[2]])
