"""ONNX models on a GPU: kgrun, torch eager, torch in a CUDA graph and torch compiled, same weights, same run.

    python benchmarks/gpu_models.py MODEL.onnx:N=1,S=128 … [--types float32 tf32 float16] [--compile MODE] [--runs 50]

With `--tune-within SECONDS` torch first tunes all of them side by side, in processes of their own that share its caches
on disk; what is not done in that time is not measured compiled. Tuning takes minutes a model, measuring seconds.

A model may be given several times with other dimensions. Times are an event pair around one call, the median of RUNS;
inputs are resident. float16 casts weights and float inputs of the model to halves. Errors are the largest difference
from torch in float64, as a part of the largest output.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from harness import Check, Section, document, head_lines, machine, markdown, run_section, sized_models, write_results
from models import feeds
from torch_graph import TorchGraph

from kgrun.graphs.bind.given import bind_given
from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.report import RunReport

COLUMNS = (
    "model", "type", "kgrun ms", "--fuse ms", "torch eager", "torch CUDA graph", "torch compiled",
    "kgrun ÷ best torch", "--fuse ÷ best torch", "kgrun error", "torch error", "kgrun peak MiB", "torch peak MiB",
    "planned ÷ bound", "steps", "--fuse steps", "where kgrun's time goes",
)  # fmt: skip
TOLERANCE = {"float32": 1e-3, "tf32": 2e-2, "float16": 2e-2}


def event_ms(call: Callable[[], Any], runs: int) -> float:
    """Median of an event pair around `call`, ms."""
    times = []
    for index in range(runs + 5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        if index >= 5:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def as_halves(path: Path, folder: Path) -> Path:
    """The model with weights, constants and casts of float32 in float16."""
    import onnx
    from onnx import TensorProto, numpy_helper

    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            halves = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(halves, tensor.name))
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    target = folder / f"{path.stem}.onnx"
    onnx.save(model, str(target))
    return target


def in_cuda_graph(program: TorchGraph, inputs: Mapping[str, torch.Tensor]) -> Callable[[], None]:
    """One replay of the program, captured after a warm-up on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            program.run(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program.run(inputs)
    replay: Callable[[], None] = graph.replay
    return replay


def hot(report: RunReport) -> str:
    """The three operators that take most of the time."""
    spent: dict[str, int] = {}
    for step in report.steps:
        spent[step.op] = spent.get(step.op, 0) + (step.times.median if step.times else 0)
    total = max(sum(spent.values()), 1)
    rows = sorted(spent.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{op} {100 * ns / total:.0f} %" for op, ns in rows)


def error_of(found: Mapping[str, Any], wanted: Mapping[str, np.ndarray[Any, Any]]) -> float:
    """Largest difference as a part of the largest output."""
    worst = 0.0
    for name, reference in wanted.items():
        array = found[name].float().cpu().numpy() if isinstance(found[name], torch.Tensor) else found[name]
        scale = max(float(np.abs(reference).max()), 1e-30)
        worst = max(worst, float(np.abs(array.astype(np.float64) - reference).max()) / scale)
    return worst


def wanted_of(bound: Any, given: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs of torch in float64."""
    program = TorchGraph(bound)
    program.weights = {k: w.double() if w.is_floating_point() else w for k, w in program.weights.items()}
    tensors = {k: torch.from_numpy(a).cuda() for k, a in given.items()}
    tensors = {k: t.double() if t.is_floating_point() else t for k, t in tensors.items()}
    with torch.no_grad():
        return {k: t.double().cpu().numpy() for k, t in program.run(tensors).items()}


def loaded(path: Path, dims: dict[str, int], kind: str) -> tuple[KernelGraph, Mapping[str, np.ndarray[Any, Any]]]:
    """A model and inputs for it; torch is told whether it may use TF32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
    given = feeds(path, {name: dims.get(name, 1) for name in onnx_graph(path).dims})
    return onnx_graph(path, dims=dims), given


def by_torch(bound: BoundGraph, given: Mapping[str, Any]) -> tuple[TorchGraph, dict[str, torch.Tensor]]:
    """A model and its inputs as torch has them."""
    program = TorchGraph(bound, channels_last="Conv" in {node.op for node in bound.nodes})
    return program, {name: torch.from_numpy(array).cuda() for name, array in given.items()}


def tune(path: Path, dims: dict[str, int], kind: str, mode: str) -> None:
    """Have torch compile a model, for its caches."""
    graph, given = loaded(path, dims, kind)
    program, inputs = by_torch(bind_given(graph, {}, given), given)
    with torch.no_grad():
        torch.compile(program.run, mode=mode)(inputs)
    torch.cuda.synchronize()


def tuned(models: list[str], types: list[str], mode: str, seconds: float) -> dict[tuple[str, str], float]:
    """Tune all models in all types side by side; how long each took that was done in time."""
    started, under_way = time.monotonic(), {}
    for word in models:
        for kind in types:
            command = [sys.executable, __file__, word, "--types", kind, "--compile", mode, "--tune"]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
            under_way[word, kind] = subprocess.Popen(command, **quiet)
    took = {}
    while under_way and time.monotonic() < started + seconds:
        for key in [key for key, process in under_way.items() if process.poll() is not None]:
            if under_way.pop(key).returncode == 0:
                took[key] = time.monotonic() - started
                print(f"… {' '.join(key)}: tuned after {took[key]:.0f} s", file=sys.stderr, flush=True)
        time.sleep(0.5)
    for process in under_way.values():
        os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it started
        process.wait()
    return took


def row(path: Path, dims: dict[str, int], kind: str, mode: str | None, runs: int, section: Section) -> tuple[Any, ...]:
    """kgrun and torch on one model."""
    label = f"{path.stem} {','.join(f'{k}={v}' for k, v in dims.items())}"
    graph, given = loaded(path, dims, kind)
    with Session(graph, device="cuda", values=given, precision="tf32" if kind == "tf32" else "float32") as session:
        report = session.run(given, iterations=runs)
        bound, plan = session.bound, session.plan
        mine = report.total.median / 1e6 if report.total else float("nan")
    wanted = wanted_of(bound, given)
    mine_error = error_of(report.outputs, wanted)
    joined, joined_error, joined_steps = fused(graph, given, kind, runs, wanted)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    program, inputs = by_torch(bound, given)
    with torch.no_grad():
        theirs_error = error_of(program.run(inputs), wanted)
        eager = event_ms(lambda: program.run(inputs), runs)
        peak = torch.cuda.max_memory_allocated() / 2**20
        replayed = event_ms(in_cuda_graph(program, inputs), runs)
        compiled = None
        if mode is not None:
            fast = torch.compile(program.run, mode=mode)
            compiled = event_ms(lambda: fast(inputs), runs)
            torch._dynamo.reset()
    best = min(t for t in (eager, replayed, compiled) if t is not None)
    tight = plan.dynamic_bytes / plan.lower_bound_bytes if plan.lower_bound_bytes else 1.0
    section.checks += [
        Check(f"{label} {kind}: error", max(mine_error, joined_error), TOLERANCE[kind]),
        Check(f"{label} {kind}: planned ÷ bound", tight, 1.0),
    ]
    return (
        label, kind, mine, joined, eager, replayed, compiled, mine / best, joined / best, mine_error, theirs_error,
        report.measured_peak_bytes / 2**20, peak, tight, len(report.steps), joined_steps, hot(report),
    )  # fmt: skip


def fused(
    graph: KernelGraph, given: Mapping[str, Any], kind: str, runs: int, wanted: Mapping[str, np.ndarray[Any, Any]]
) -> tuple[float, float, int]:
    """With `--fuse`: milliseconds, error, steps."""
    precision = "tf32" if kind == "tf32" else "float32"
    with Session(graph, device="cuda", values=given, precision=precision, fuse=True) as session:
        report = session.run(given, iterations=runs, per_step=False)
    took = report.total.median / 1e6 if report.total else float("nan")
    return took, error_of(report.outputs, wanted), len(report.steps)


def main() -> None:
    """Measure, write results, print the page last."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", nargs="+")
    arguments.add_argument("--types", nargs="+", default=["float32", "tf32", "float16"])
    arguments.add_argument("--compile", default=None, metavar="MODE", help="also torch.compile in this mode")
    arguments.add_argument("--tune-within", type=float, metavar="SECONDS", help="tune all models first, side by side")
    arguments.add_argument("--tune", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--runs", type=int, default=50)
    arguments.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments.add_argument("--name", default="h200_models")
    given = arguments.parse_args()
    if given.tune:
        with tempfile.TemporaryDirectory() as folder:
            for path, dims in sized_models(given.models):
                source = as_halves(path, Path(folder)) if given.types == ["float16"] else path
                tune(source, dims, given.types[0], given.compile)
        return
    facts = machine(torch.cuda.get_device_name()) | {"torch": torch.__version__}
    took = None
    if given.compile and given.tune_within:
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = (
            "2"  # a process; here too, for it may be part of what caches look at
        )
        took = tuned(given.models, given.types, given.compile, given.tune_within)

    def save(*sections: Section) -> str:
        text = markdown(head_lines("Models on a GPU", facts), list(sections))
        write_results(given.out, given.name, text, document(facts, list(sections)))
        return text

    def work(section: Section) -> None:
        section.columns = COLUMNS
        with tempfile.TemporaryDirectory() as folder:
            for word, (path, dims) in zip(given.models, sized_models(given.models), strict=True):
                for kind in given.types:
                    source = as_halves(path, Path(folder)) if kind == "float16" else path
                    mode = given.compile if took is None or (word, kind) in took else None
                    if took is not None:
                        when = f"after {took[word, kind]:.0f} s" if mode else f"not within {given.tune_within:g} s"
                        section.notes.append(f"{word} {kind}: tuned {when}, {given.compile}, all at once")
                    try:
                        section.rows.append(row(source, dims, kind, mode, given.runs, section))
                        print("…", *section.rows[-1][:6], file=sys.stderr, flush=True)
                    except Exception as error:
                        empty = [None] * (len(COLUMNS) - 3)
                        section.rows.append((path.stem, kind, *empty, f"{type(error).__name__}: {str(error)[:200]}"))
                        section.checks.append(Check(f"{path.stem} {kind}: ran", 1.0, 0.0))
                    save(section)  # whatever comes: a long run is not lost

    print(save(run_section("Models", work)))


if __name__ == "__main__":
    main()
