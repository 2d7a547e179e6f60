"""ONNX models through kgrun and through ONNX Runtime: agreement, memory against the bound, time.

    python benchmarks/models.py MODEL.onnx[:NAME=SIZE,…] … [--threads 1] [--rounds 40] [--device cuda]
        [--save benchmarks/results] [--name models_cpu] [--import-only MODEL.onnx …]

The two take turns, each with THREADS threads (0: as many as they like). Times are CPU times of the whole process, all
threads together, the least of all rounds: waiting for a shared machine does not count. Dimensions that neither the
words nor `DIMS` name are 1. kgrun's graph holds for the given inputs' shapes, and for small whole-number inputs that
decide branches. Every model is also imported in a process of its own: seconds and peak memory (resident, as Linux
counts it).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Check, Section, head_lines, machine, markdown, run_section, sized_models, write_results

Array = np.ndarray[Any, Any]

# Sizes of dimensions by model: by name, or by input and axis.
DIMS: dict[str, dict[str, int]] = {
    "ppocr_cls": {"x_2": 48, "x_3": 192},
    "ppocr6_det_tiny": {"DynamicDimension_1": 640, "DynamicDimension_2": 640},
    "ppocr6_rec_tiny": {"DynamicDimension_1": 320},
    "silero_16k_op15": {"sequence": 512},
    "basic_pitch": {},
    "resnet50_tiny": {"H": 64, "W": 64},
    "resnet50": {"H": 224, "W": 224},
    "bert_tiny": {"N": 2, "S": 16},
    "bert": {"S": 128},
    "gpt2_tiny": {"T": 12},
    "gpt2": {"T": 64},
    "llama_tiny": {"N": 2, "S": 16},
}
# Inputs that random numbers would not do for.
SPECIAL: dict[str, Callable[[tuple[int, ...]], Array]] = {
    "sr": lambda shape: np.full(shape, 16_000, np.int64),
    "attention_mask": lambda shape: np.ones(shape, np.int64),
    "position_ids": lambda shape: np.broadcast_to(np.arange(shape[-1]), shape).copy(),
}
_TIMES = 6.0  # as slow as ONNX Runtime a numpy device may be
_TOLERANCE = 1e-3
_SHORT = 16  # elements of an input that may decide a branch


def sizes(path: Path) -> dict[str, int]:
    """Every open dimension's size."""
    from kgrun.graphs.importers.onnx import onnx_graph

    chosen = DIMS.get(path.stem, {})
    return {name: chosen.get(name, 1) for name in onnx_graph(path).dims}


def feeds(path: Path, dims: dict[str, int]) -> dict[str, Array]:
    """Inputs of the model: normal floats, whole numbers from 0 to 99."""
    from kgrun.graphs.data import numpy_dtype
    from kgrun.graphs.expressions import evaluate
    from kgrun.graphs.importers.onnx import onnx_graph

    rng, found = np.random.default_rng(0), {}
    for name, spec in onnx_graph(path).tensors.items():
        if spec.role != "input":
            continue
        shape = tuple(evaluate(extent, dims) for extent in spec.shape or ())
        kind = numpy_dtype(str(spec.dtype))
        if name in SPECIAL:
            found[name] = SPECIAL[name](shape).astype(kind)
        else:
            numbers = rng.standard_normal(shape) if kind.kind == "f" else rng.integers(0, 100, shape)
            found[name] = np.asarray(numbers).astype(kind)
    return found


def side_by_side(paths: list[Path], threads: int, rounds: int, section: Section) -> None:
    """One row a model."""
    section.columns = (
        "model", "nodes", "steps", "error ÷ largest output", "planned ÷ bound", "peak MiB",
        "kgrun CPU ms", "ONNX Runtime CPU ms", "kgrun ÷ ONNX Runtime", "where kgrun's time goes",
    )  # fmt: skip
    for path in paths:
        try:
            section.rows.append(_row(path, threads, rounds, section))
        except Exception as error:
            section.rows.append((path.stem, *[None] * 8, f"{type(error).__name__}: {str(error)[:120]}"))


def _row(path: Path, threads: int, rounds: int, section: Section) -> tuple[Any, ...]:
    from kgrun.runtime.session import Session

    given = feeds(path, sizes(path))
    other = _onnx_runtime(path, threads)
    graph = _graph(path, given)
    with Session(graph, device="cpu", values=given) as session:
        report = session.run(given, iterations=3, warmup=1)
        error = _largest_error(report.outputs, other(given))
        times = [(_cpu_ms(session.runner.issue), _cpu_ms(lambda: other(given))) for _ in range(rounds)]
        mine, others = min(row[0] for row in times), min(row[1] for row in times)
        tight = _tightness(session.plan)
        section.checks += [
            Check(f"{path.stem}: error", error, _TOLERANCE),
            Check(f"{path.stem}: planned ÷ bound", tight, 1.0),
            Check(f"{path.stem}: kgrun ÷ ONNX Runtime", mine / others, _TIMES),
        ]
        return (
            path.stem, len(graph.nodes), len(session.program.steps), error, tight, session.plan.peak_bytes / 2**20,
            mine, others, mine / others, _hot(report),
        )  # fmt: skip


def on_gpu(paths: list[Path], device: str, section: Section) -> None:
    """One row a model, against ONNX Runtime on the CPU where it is installed, else against kgrun's CPU device."""
    from kgrun.runtime.session import Session

    section.columns = (
        "model", "nodes", "steps", "compared with", "error ÷ largest output", "planned ÷ bound", "peak MiB", "ms",
        "one CUDA graph",
    )  # fmt: skip
    for path in paths:
        try:
            given = feeds(path, sizes(path))
            graph = _graph(path, given)
            name, wanted = _reference(path, graph, given)
            with Session(graph, device=device, values=given) as session:
                report = session.run(given)
                error, tight = _largest_error(report.outputs, wanted), _tightness(session.plan)
                section.checks += [
                    Check(f"{path.stem}: error", error, _TOLERANCE),
                    Check(f"{path.stem}: planned ÷ bound", tight, 1.0),
                ]
                section.rows.append((
                    path.stem, len(graph.nodes), len(session.program.steps), name, error, tight,
                    session.plan.peak_bytes / 2**20, report.total.median / 1e6 if report.total else None,
                    session.not_replayed or "yes",
                ))  # fmt: skip
        except Exception as error:
            section.rows.append((path.stem, *[None] * 7, f"{type(error).__name__}: {str(error)[:120]}"))


def _graph(path: Path, given: dict[str, Array]) -> Any:
    """kgrun's graph for the shapes of the inputs, and for what decides branches."""
    from kgrun.graphs.importers.onnx import onnx_graph

    dims = sizes(path)
    graph = onnx_graph(path, dims=dims)
    if not graph.graphs:
        return graph
    deciding = {name: a for name, a in given.items() if a.size <= _SHORT and a.dtype.kind in "iub"}
    return onnx_graph(path, dims=dims, values=deciding)


def _onnx_runtime(path: Path, threads: int) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """What runs the model through ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda given: dict(zip(names, session.run(None, given), strict=True))


def _reference(path: Path, graph: Any, given: dict[str, Array]) -> tuple[str, dict[str, Array]]:
    from kgrun.runtime.session import Session

    try:
        return "ONNX Runtime", _onnx_runtime(path, 0)(given)
    except ImportError:
        with Session(graph, device="cpu", values=given) as session:
            return "kgrun's CPU device", dict(session.run(given).outputs)


def _cpu_ms(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def _tightness(plan: Any) -> float:
    return plan.dynamic_bytes / plan.lower_bound_bytes if plan.lower_bound_bytes else 1.0


def _largest_error(found: Any, wanted: dict[str, Array]) -> float:
    return max(_error(found[name], array) for name, array in wanted.items())


def _error(found: Array, wanted: Array) -> float:
    if not wanted.size:
        return 0.0
    apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()
    return float(apart / max(float(np.abs(wanted.astype(np.float64)).max()), 1e-6))


def _hot(report: Any) -> str:
    """The operators that take the most time, with their shares."""
    spent: dict[str, int] = {}
    for step in report.steps:
        if step.times is not None:
            spent[step.op] = spent.get(step.op, 0) + step.times.min
    total = sum(spent.values()) or 1
    first = sorted(spent.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{op} {100 * nanoseconds / total:.0f} %" for op, nanoseconds in first)


_IMPORT = """
import sys, time
started = time.perf_counter()
from pathlib import Path
from kgrun.graphs.importers import import_source
made = import_source(Path(sys.argv[1]), Path(sys.argv[2]))
spent = time.perf_counter() - started
peak = next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(spent, peak, made.nodes)
"""


def imports(paths: list[Path], section: Section) -> None:
    """One row a model: imported in a process of its own, unbound."""
    section.columns = ("model", "model MB", "nodes", "seconds", "peak MiB")
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-c", _IMPORT, str(path), str(Path(folder) / "graph.json")]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                section.rows.append((path.stem, path.stat().st_size / 1e6, None, None, None))
                section.notes.append(f"{path.stem}: {done.stderr.strip().splitlines()[-1][:160]}")
                continue
            seconds, peak, nodes = done.stdout.split()
            section.rows.append((path.stem, path.stat().st_size / 1e6, int(nodes), float(seconds), float(peak)))
            section.checks += [
                Check(f"{path.stem}: seconds", float(seconds), 15.0),
                Check(f"{path.stem}: peak MiB", float(peak), 1536.0),
            ]


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="model.onnx:N=1,S=128")
    parser.add_argument("--import-only", nargs="*", type=Path, default=[], help="models to import, not to run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--device", default="cpu", help="cuda: agreement, memory and time there, one section")
    parser.add_argument("--save", type=Path, help="folder for the result files")
    parser.add_argument("--name", help="of the result files (default: models_cpu or models_gpu)")
    options = parser.parse_args()
    models = []
    for path, dims in sized_models(options.models):
        DIMS[path.stem] = DIMS.get(path.stem, {}) | dims
        models.append(path)
    if options.threads and "OPENBLAS_NUM_THREADS" not in os.environ:
        # numpy reads it once, when it is loaded.
        os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if options.device != "cpu":
        run = run_section(f"On {options.device}", lambda section: on_gpu(models, options.device, section))
        sections, name = [run], "models_gpu"
    else:
        sections = [
            run_section(
                f"Side by side, threads: {options.threads or 'all'}",
                lambda section: side_by_side(models, options.threads, options.rounds, section),
            ),
            run_section("Imports", lambda section: imports([*models, *options.import_only], section)),
        ]
        name = "models_cpu"
    facts = machine(_device(options.device))
    facts["command"] = "python benchmarks/models.py " + " ".join(
        word if ".onnx" not in word else word[word.rfind("/") + 1 :] for word in sys.argv[1:]
    )
    text = markdown(head_lines("ONNX models", facts), sections)
    print(text)
    if options.save is not None:
        from harness import document

        write_results(options.save, options.name or name, text, document(facts, sections))
    return 0 if all(check.ok for section in sections for check in section.checks) else 1


def _device(name: str) -> str:
    from kgrun.runtime.devices import open_device

    if name == "cpu":
        return f"CPU, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    device, _ = open_device(name)
    try:
        return device.info.name
    finally:
        device.close()


if __name__ == "__main__":
    sys.exit(main())
