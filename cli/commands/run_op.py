"""`kgrun run-op`: a single operator on given inputs, with the reports of `execute`; or what operators take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kgrun.cli import interrupts
from kgrun.cli import options as opt
from kgrun.cli import timeout as watchdog
from kgrun.cli.output import Output
from kgrun.cli.values import check_number, optional_size, parse_device
from kgrun.graphs.errors import GraphError, UsageError

if TYPE_CHECKING:
    from kgrun.graphs.operators.base import OpSchema
    from kgrun.runtime.report import RunReport

Operator = Annotated[str | None, opt.argument("OP", "An operator: Conv, MatMul, NonZero, …")]
In = Annotated[
    list[str] | None,
    opt.option(
        "--in", env=False, metavar="OPERAND",
        help="An input, in order: FILE.npy, FILE.npz#KEY, DTYPE:VALUE, DTYPE[SHAPE] (random); - is absent.",
    ),
]  # fmt: skip
Attributes = Annotated[
    list[str] | None, opt.option("--attr", env=False, metavar="NAME=VALUE", help="An attribute; lists as 1,2,3.")
]
Out = Annotated[
    list[str] | None, opt.option("--out", env=False, metavar="FILE", help="Write an output as .npy, in order.")
]
Outputs = Annotated[
    int | None, opt.option("--outputs", env=False, min=1, metavar="N", help="How many outputs are wanted.")
]
Time = Annotated[
    bool, opt.option("--time", env=False, help="Measure it as `execute` does: planned, replayed, by the best method.")
]
Listing = Annotated[bool, opt.option("--list", env=False, help="List the operators.")]
Describe = Annotated[bool, opt.option("--describe", env=False, help="Show what the operator takes, and run nothing.")]


def command(
    operator: Operator = None,
    inputs: In = None,
    attr: Attributes = None,
    out: Out = None,
    outputs: Outputs = None,
    time: Time = False,
    list: Listing = False,
    describe: Describe = False,
    json: opt.Json = False,
    csv: opt.Csv = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
    device: opt.Device = "auto",
    seed: opt.Seed = 0,
    iterations: opt.Iterations = None,
    warmup: opt.Warmup = None,
    duration: opt.Duration = None,
    precision: opt.Precision = opt.PrecisionChoice.float32,
    memory_limit: opt.MemoryLimit = None,
    reuse_outputs: opt.ReuseOutputs = False,
    sync_each: opt.SyncEach = False,
    timeout: opt.Timeout = None,
) -> None:
    """Run a single operator on given inputs; print its time, memory and outputs."""
    output = Output(json, csv, quiet, verbose, no_color)
    if list:
        _show_list(output)
        return
    if operator is None:
        raise UsageError("no operator is named", code="KG250", help="`kgrun run-op --list` lists them")
    schema = _schema(operator)
    if describe:
        _show_signature(output, schema)
        return
    loop = {"iterations": iterations, "warmup": warmup, "duration": check_number(duration, "--duration", positive=True)}
    settings = {
        "device": parse_device(device),
        "seed": seed,
        "memory_limit": optional_size(memory_limit, "--memory-limit"),
        "sync_each": sync_each,
        "precision": precision.value,
    }
    if not time:
        settings["reuse_outputs"] = reuse_outputs
    files = [_npy(file) for file in out or ()]
    if outputs is not None and outputs < len(files):
        raise UsageError(f"--out names {len(files)} files for {outputs} outputs", code="KG240")
    from kgrun.runtime.eager.operator import default_outputs

    count = outputs or max(len(files), default_outputs(schema))
    watchdog.supervise(check_number(timeout, "--timeout", positive=True), json=json)
    with interrupts.bounded():
        report = _run(output, schema, inputs or (), attr or (), count, settings, loop, time)
    watchdog.commit()
    _save(report, files)
    from kgrun.cli.show import show_run

    show_run(output, report, None)


def _schema(operator: str) -> OpSchema:
    from kgrun.graphs.operators import lookup

    try:
        return lookup(operator)
    except GraphError as error:
        raise UsageError(error.message, code="KG250", help=error.help) from None


def _run(
    output: Output,
    schema: OpSchema,
    inputs: Sequence[str],
    attributes: Sequence[str],
    count: int,
    settings: dict[str, Any],
    loop: dict[str, Any],
    time: bool,
) -> RunReport:
    from kgrun.cli.operands import named_fault, parse_attributes, parse_operand
    from kgrun.cli.progress import phase
    from kgrun.runtime.eager.operator import operator_graph
    from kgrun.runtime.sessions import SINGLE, open_session

    operands = [parse_operand(text, i) for i, text in enumerate(inputs)]
    read = parse_attributes(attributes, schema)
    tell = watchdog.tell if watchdog.supervised() else None
    try:
        graph, given = operator_graph(schema.name, operands, read, count)
        with (
            phase(f"running {schema.name}", output),
            open_session(graph, memory="planned" if time else SINGLE, values=given, tell=tell, **settings) as session,
        ):
            return session.run(**loop)
    except GraphError as error:
        raise named_fault(error, dict(enumerate(inputs)), attributes) from None


def _npy(file: str) -> Path:
    if not file.lower().endswith(".npy"):
        raise UsageError(f"--out: {file!r} is no .npy file", code="KG258", help="for example --out y.npy")
    return Path(file)


def _save(report: RunReport, files: Sequence[Path]) -> None:
    from kgrun.graphs.data import save_npy

    for file, array in zip(files, report.outputs.values(), strict=False):
        save_npy(file, array)


def _show_list(output: Output) -> None:
    from kgrun.cli.render import operators
    from kgrun.graphs.operators import all_schemas

    schemas = dict(sorted(all_schemas().items()))
    output.emit(
        document=lambda: {"operators": [operators.operator_row(schema) for schema in schemas.values()]},
        report=lambda: [operators.operator_table(schemas)],
        rows=lambda: [{"name": s.name, "family": s.family} for s in schemas.values()],
    )


def _show_signature(output: Output, schema: OpSchema) -> None:
    from kgrun.cli.render import operators
    from kgrun.graphs.errors import DeviceUnavailable
    from kgrun.runtime.kernels.base import cpu_kernel, cuda_kernel

    devices = {}
    for name, find in (("cpu", cpu_kernel), ("cuda", cuda_kernel)):
        try:
            devices[name] = find(schema.name) is not None
        except DeviceUnavailable:
            devices[name] = False
    output.emit(
        document=lambda: {"operator": operators.operator_row(schema) | {"devices": devices}},
        report=lambda: operators.signature_lines(schema, devices),
    )
