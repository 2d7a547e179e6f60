"""kgrun beside hand-written code, raw PyCUDA, ncu and torch on the same work: one run, tables and result files.

    python benchmarks/gpu_side_by_side.py [--name NAME] [--only abcdef] [FOLDER …]

FOLDERs hold launch lists (`kgrun import`). Needs a GPU, PyCUDA and cuda-bindings; uses ncu and torch where they are.
Writes benchmarks/results/NAME.md and NAME.json. A section that fails is reported and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from harness import (
    Check,
    Section,
    document,
    head_lines,
    machine,
    markdown,
    medians_in_turn,
    ncu_durations,
    run_section,
    write_results,
)
from rivals import SAXPY_BY_HAND, Times, events_us, hand_captured, host_us, raw_pycuda, torch_ways
from side_by_side_graphs import COUNT, diamond_graph, stream_graph, tiny_graph

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"1 µs": 4 << 10, "10 µs": 24 << 20, "100 µs": 192 << 20, "1,000 µs": 1920 << 20}
# Until the cache holds as much of what a kernel wrote before as it will: the launches behind the first 15 are compared.
NCU_LAUNCHES, NCU_WARMUP = 30, 15
PAIRS = 3
LONG_US = 20.0
CONSOLE = "from kgrun.cli.entry import process; process()"  # what an installed `kgrun` runs

# Running


def session(device: Any, graph: Any, **options: Any) -> Any:
    """A session of a graph record or a loaded graph."""
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.session import Session

    made = KernelGraph.model_validate(graph) if isinstance(graph, dict) else graph
    return Session(made, device=device, **options)


def addresses(loaded: Any) -> list[int]:
    """Where a chain's tensors lie, first to last."""
    launches = [step.work for step in loaded.program.steps]
    pointers = [launches[0].args[0], *(launch.args[1] for launch in launches)]
    return [loaded.loaded.address(pointer) for pointer in pointers]


# The sections


def tiny_kernels(device: Any, section: Section) -> None:
    """(a) replay and lean loop against the same by hand, on the same addresses; each made anew several times."""
    pairs = [_tiny_pair(device) for _ in range(PAIRS)]
    found, host = ({name: statistics.median(pair[k][name] for pair in pairs) for name in pairs[0][k]} for k in (0, 1))
    try:
        found |= medians_in_turn(2, torch_ways())
    except Exception as error:
        section.notes.append(f"torch: {error}")
    section.columns = ("way", "µs a run", "µs a kernel", "host µs to start")
    section.rows = [(name, us, us / COUNT, host.get(name)) for name, us in found.items()]
    section.checks = [
        Check("replay ÷ hand-captured", found["kgrun, replay"] / found["hand-captured graph"], 1.03),
        Check("lean loop ÷ PyCUDA", found["kgrun, lean loop"] / found["PyCUDA prepared launches"], 1.10),
        Check("host µs to start a replay", host["kgrun, replay"], 15.0),
    ]


def _tiny_pair(device: Any) -> tuple[dict[str, float], dict[str, float]]:
    """µs of a run, and of the host to start it, by way."""
    record = tiny_graph()
    with session(device, record) as replayed, session(device, record, graph_replay=False) as looped:
        raw = raw_pycuda(device, addresses(replayed))
        raw()
        by_hand, free = hand_captured(device, raw)
        issues = {"kgrun, replay": replayed.runner.issue, "hand-captured graph": by_hand,
                  "kgrun, lean loop": looped.runner.issue, "PyCUDA prepared launches": raw}  # fmt: skip
        for loaded in (replayed, looped):
            loaded.run(iterations=3, per_step=False)
        ways: Times = {name: partial(events_us, device, issue) for name, issue in issues.items()}
        found = medians_in_turn(5, ways)
        host = {name: host_us(device, issue) for name, issue in issues.items()}
        free()
    return found, host


def profile_streams() -> None:
    """What ncu looks at: each size launched a few times."""
    from kgrun.runtime.devices.cuda import CudaDevice

    device = CudaDevice()
    for nbytes in SIZES.values():
        with session(device, stream_graph(nbytes), graph_replay=False) as loaded:
            loaded.run(iterations=NCU_LAUNCHES, warmup=0, per_step=False)
    device.close()


def kernel_times(device: Any, section: Section) -> None:
    """(b) reported medians against ncu's."""
    reported, amortised = {}, {}
    for label, nbytes in SIZES.items():
        with session(device, stream_graph(nbytes)) as loaded:
            report = loaded.run(iterations=20)
            times, balance = report.steps[0].times, report.balance
            reported[label] = times.median / 1e3
            amortised[label] = (times.median - balance.ramps_ns) / 1e3
    command = [sys.executable, str(Path(__file__).resolve()), "--profile"]
    found = ncu_durations(command, "stream", timeout=120)
    per = len(found) // len(SIZES)
    warm = {label: found[i * per + NCU_WARMUP : (i + 1) * per] for i, label in enumerate(SIZES)}
    ncu = {label: statistics.median(times) for label, times in warm.items() if times}
    section.columns = ("kernel", "kgrun µs", "amortised µs", "ncu µs", "kgrun ÷ ncu")
    for label, us in reported.items():
        theirs = ncu.get(label)
        section.rows.append((label, us, amortised[label], theirs, us / theirs if theirs else None))
        if theirs is None:
            continue
        if us >= LONG_US:
            section.checks.append(Check(f"{label}: apart from ncu", abs(us / theirs - 1), 0.03))
        else:
            section.checks.append(Check(f"{label}: not above ncu, µs", us, theirs))
            section.checks.append(Check(f"{label}: not below amortised, µs", us, amortised[label], least=True))
    if not ncu:
        section.notes.append("ncu is not installed or recorded nothing")


def diamond(device: Any, section: Section) -> None:
    """(c) four independent kernels on one stream and on several."""
    results = {}
    for streams in ("file", "auto"):
        with session(device, diamond_graph(), streams=streams) as loaded:
            report = loaded.run(iterations=50)
            branch = next(step for step in report.steps if step.name == "branch_a")
            results[streams] = report
            section.rows.append((streams, report.total.median / 1e3, branch.times.median / 1e3, len(report.steps)))
    same = all(np.array_equal(results["file"].outputs[n], results["auto"].outputs[n]) for n in results["file"].outputs)
    section.columns = ("--streams", "µs a run", "µs a branch", "steps")
    faster = results["file"].total.median / results["auto"].total.median
    section.checks = [
        Check("file ÷ auto", faster, 2.5, least=True),
        Check("outputs equal", float(same), 1.0, least=True),
    ]


def launch_list(device: Any, folder: Path, section: Section) -> None:
    """(d) one imported graph: outputs, its time against the same launches captured by hand, how its times add up."""
    from kgrun.graphs.importers import import_source
    from kgrun.graphs.load import load_graph

    given, expected = (dict(np.load(folder / f"{name}.npz")) for name in ("inputs", "expected"))
    with tempfile.TemporaryDirectory() as place:
        import_source(folder, Path(place) / "graph.json")
        graph = load_graph(str(Path(place) / "graph.json"))
        wanted = {tensor: given[tensor] for tensor in graph.tensors if tensor in given}
        with session(device, graph, values=wanted) as loaded:
            report = loaded.run(wanted, iterations=50)
            apart = max(
                (float(np.max(np.abs(report.outputs[n] - expected[n]))) for n in report.outputs if n in expected),
                default=float("nan"),
            )
            launches = [step.raw for step in loaded.runner.prepared]
            by_hand, free = hand_captured(device, lambda: [launch() for launch in launches])
            replay = loaded.runner.issue
            ways: Times = {"kgrun": partial(events_us, device, replay), "hand": partial(events_us, device, by_hand)}
            found = medians_in_turn(7, ways)
            free()
    balance = report.balance
    sums = abs(balance.difference_ns) / balance.total_ns
    section.columns = (
        "graph",
        "steps",
        "kgrun µs",
        "by hand µs",
        "largest error",
        "kernels µs",
        "between µs",
        "expected µs",
        "total µs",
    )
    section.rows.append(
        (folder.name, len(report.steps), found["kgrun"], found["hand"], apart, balance.kernels_ns / 1e3,
         balance.between_ns / 1e3, balance.expected_ns / 1e3, balance.total_ns / 1e3)
    )  # fmt: skip
    section.checks += [
        Check(f"{folder.name}: largest error", apart, 1e-3),
        Check(f"{folder.name}: kgrun ÷ by hand", found["kgrun"] / found["hand"], 1.02),
        Check(f"{folder.name}: kernels and gaps, apart from total", sums, 0.03),
    ]


def whole_process(device: Any, section: Section) -> None:
    """(e) `kgrun execute` with a warm cache against a minimal PyCUDA script."""
    from kgrun.runtime.compile.nvrtc import compile_cuda

    source = (ROOT / "examples" / "saxpy.cu").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        cubin, script = Path(place) / "saxpy.cubin", Path(place) / "saxpy.py"
        cubin.write_bytes(compile_cuda(source, name="saxpy.cu", arch=device.info.arch).image)
        script.write_text(SAXPY_BY_HAND, encoding="utf-8")
        ours = [sys.executable, "-c", CONSOLE, "execute", "examples/saxpy.yaml", "--device", "cuda"]
        commands = {"kgrun execute": ours, "kgrun execute, one run": [*ours, "--iterations", "1", "--warmup", "0"],
                    "PyCUDA script": [sys.executable, str(script), str(cubin)]}  # fmt: skip
        for command in commands.values():
            _process_ms(command)
        found = medians_in_turn(7, {name: partial(_process_ms, command) for name, command in commands.items()})
    section.columns = ("process", "ms")
    section.rows = list(found.items())
    section.checks = [Check("kgrun ÷ PyCUDA script", found["kgrun execute"] / found["PyCUDA script"], 1.3)]


def _process_ms(command: Sequence[str]) -> float:
    started = time.perf_counter()
    # As packages are installed: their bytecode is there, whatever the shell says of writing it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)
    took = (time.perf_counter() - started) * 1e3
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return took


def example_commands(page: str) -> list[str]:
    """The commands of examples/README.md that execute on one GPU and keep within its memory."""
    lines = re.findall(r"^    kgrun (execute .+)$", page, re.MULTILINE)
    return [line for line in lines if "--ranks" not in line and "--memory-limit" not in line]


def examples(section: Section) -> None:
    """(f) the examples as their page runs them, in a folder for what they write."""
    section.columns = (
        "example", "outputs", "kernels", "total µs", "expected µs", "between µs", "difference", "host µs to start",
    )  # fmt: skip
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "examples").symlink_to(ROOT / "examples")
        for line in example_commands(page):
            _example(shlex.split(line), place, section)


def _example(words: Sequence[str], folder: str, section: Section) -> None:
    """One example's row and checks."""
    name = Path(words[1]).stem + ("" if "--dim" not in words else f" {words[words.index('--dim') + 1]}")
    fed = "\nqueues:" in (ROOT / words[1]).read_text(encoding="utf-8")  # it runs as often as it has batches
    more = ["--device", "cuda", *([] if fed else ["--iterations", "50"]), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "kgrun.cli", *words, *more], cwd=folder, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    found = json.loads(done.stdout or "{}")
    outputs = "–"
    if "--expected" in words:
        same = bool(found.get("comparisons")) and all(row["ok"] for row in found["comparisons"])
        section.checks.append(Check(f"{name}: outputs as expected", float(same), 1.0, least=True))
        outputs = "equal" if same else "DIFFER"
    balance = found.get("balance")
    if balance is None:
        section.notes.append(f"{name}: {found.get('error', {}).get('message', done.stderr[-300:])}")
        section.checks.append(Check(f"{name}: kernels and gaps, apart from total", float("nan"), 0.03))
        return
    apart = balance["difference_ns"] / balance["total_ns"]
    section.rows.append(
        (name, outputs, len(found["kernels"]), balance["total_ns"] / 1e3, balance["expected_ns"] / 1e3,
         balance["between_ns"] / 1e3, f"{balance['difference']} {100 * apart:+.1f} %", found["issue_ns"] / 1e3)
    )  # fmt: skip
    if not fed:
        section.checks.append(Check(f"{name}: kernels and gaps, apart from total", abs(apart), 0.03))


def main() -> None:
    """Run the sections and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders with launch lists")
    parser.add_argument("--name", default="gpu_side_by_side", help="of the result files")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder for them")
    parser.add_argument("--only", default="abcdef", help="letters of the sections to run")
    parser.add_argument("--profile", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.profile:
        profile_streams()
        return
    os.environ.pop("KGRUN_DEBUG", None)
    from kgrun.runtime.devices.cuda import CudaDevice

    device = CudaDevice()
    sections = []
    plan: list[tuple[str, str, Callable[[Section], None]]] = [
        ("a", f"(a) {COUNT:,} tiny kernels", partial(tiny_kernels, device)),
        ("b", "(b) Kernels of about 1 to 1,000 µs", partial(kernel_times, device)),
        ("c", "(c) Four independent kernels, a quarter of the GPU each", partial(diamond, device)),
        *(("d", f"(d) Launch list {folder.name}", partial(launch_list, device, folder)) for folder in given.folders),
        ("e", "(e) The whole process", partial(whole_process, device)),
        ("f", "(f) Examples", examples),
    ]
    facts = machine(f"{device.info.name} ({device.info.arch})") | {"driver": device.info.versions}
    for letter, title, work in plan:
        if letter in given.only:
            sections.append(run_section(title, work))
            write_results(given.out, given.name, markdown(head_lines("Side by side", facts), sections),
                          document(facts, sections))  # fmt: skip
    try:
        device.close()
    finally:
        print(markdown(head_lines("Side by side", facts), sections))
    failed = [check.text() for section in sections for check in section.checks if not check.ok]
    broken = [section.title for section in sections if section.error]
    print("all checks hold" if not failed and not broken else "\n".join(["NOT MET:", *failed, *broken]))


if __name__ == "__main__":
    main()
