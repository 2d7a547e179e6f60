"""Graphs under a memory limit on a GPU: outputs, time against the unlimited run, prediction, bound, and torch.

    python benchmarks/gpu_offload.py [--layers 96] [--hidden 2048] [--batch 8192] [--random 40] [--quick]

Four parts: a training step of an MLP at 30, 50 and 70 % of its unlimited peak, planned and by the older rule, beside
torch with activation offload; weights that live on the host; a graph of twice its limit; random limits, compared byte
for byte. Writes benchmarks/results/NAME.md and .json, and prints the page last.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import statistics
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.memory.offload.bounds import bounds_of
from kgrun.runtime.memory.offload.fit import problem_of
from kgrun.runtime.memory.offload.infeasible import floor
from kgrun.runtime.memory.offload.times import PROFILES, DeviceProfile, measured_profile
from kgrun.runtime.program import Transfer
from kgrun.runtime.report import RunReport

sys.path.insert(0, str(Path(__file__).parent))
from harness import Check, Section, document, head_lines, machine, markdown, run_section, write_results
from offload_graphs import large_chain, mlp_step, streamed_blocks

GIB = 1 << 30
COLUMNS = (
    "limit", "GiB", "plan", "ms a run", "÷ unlimited", "predicted ms", "predicted ÷ measured", "bound ms", "÷ bound",
    "exposed ms", "GiB in", "GiB out", "outputs", "s to prepare",
)  # fmt: skip


def digests(report: RunReport) -> dict[str, str]:
    """SHA-256 of each output's bytes."""
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in report.outputs.items()}


def profile_of(report: RunReport, base: DeviceProfile) -> DeviceProfile:
    """Median times of a report's steps."""
    medians = {i: step.times.median for i, step in enumerate(report.steps) if step.times is not None}
    return measured_profile(report.program, medians, base)


def exposed_ms(report: RunReport, profile: DeviceProfile) -> float | None:
    """Time of a run beyond its steps, by the times that steps have in the unlimited run."""
    if report.total is None:
        return None
    steps = [s for s in report.program.steps if not isinstance(s.work, Transfer)]
    alone = sum(profile.step_ns.get(s.name, 0.0) for s in steps)
    return (report.total.median - alone) / 1e6


class Subject:
    """One graph: its unlimited run, and limited ones against it."""

    def __init__(self, made: Mapping[str, Any], device: str, iterations: int) -> None:
        self.graph, self.device, self.iterations = KernelGraph.model_validate(made), device, iterations
        with Session(self.graph, device=device, offload="off") as session:
            report = session.run(iterations=iterations, warmup=2, per_step=True, roofline=False)
            self.program, self.peak = session.program, session.plan.peak_bytes
        assert report.total is not None
        self.unlimited_ms = report.total.median / 1e6
        self.profile = profile_of(report, PROFILES["h200"])
        self.digests = digests(report)
        self.floor = floor(problem_of(self.program, self.peak, self.profile))[0]

    def run(self, limit: int | None, mode: str, profile: DeviceProfile | None = None) -> tuple[RunReport, float]:
        """A limited run and the seconds that preparing it took."""
        started = time.monotonic()
        with Session(
            self.graph,
            device=self.device,
            memory_limit=limit,
            offload=mode,
            profile=profile,  # type: ignore[arg-type]
        ) as session:
            prepared = time.monotonic() - started
            report = session.run(iterations=self.iterations, warmup=2, per_step=False)
            assert limit is None or session.device.peak_memory() <= limit, "more memory than the limit"
        return report, prepared

    def row(self, name: str, limit: int | None, mode: str) -> tuple[list[Any], dict[str, float]]:
        """Cells of a limited run, and the numbers that are checked."""
        profile = None if mode == "auto" else self.profile
        report, prepared = self.run(limit, mode, profile)
        offload, total = report.program.offload, report.total
        assert total is not None
        ms = total.median / 1e6
        equal = digests(report) == self.digests
        numbers = {"equal": float(equal), "ms": ms, "slower": ms / self.unlimited_ms}
        cells = [name, (limit or self.peak) / GIB, mode, ms, ms / self.unlimited_ms]
        if offload is None:
            return [*cells, None, None, None, None, None, 0.0, 0.0, "equal" if equal else "DIFFER", prepared], numbers
        known = DeviceProfile(
            "measured", self.profile.bytes_per_s, self.profile.flops_per_s, 0.0, offload.rates, self.profile.step_ns
        )
        found = bounds_of(problem_of(self.program, limit, known), offload.predicted_ns)
        bound = (found.lp_ns or max(found.compute_ns, found.in_ns, found.out_ns)) / 1e6
        predicted = offload.predicted_ns / 1e6
        numbers |= {"predicted": predicted / ms, "bound": ms / bound}
        moved = (offload.in_bytes / GIB, offload.out_bytes / GIB)
        cells += [predicted, predicted / ms, bound, ms / bound, exposed_ms(report, self.profile), *moved]
        return [*cells, "equal" if equal else "DIFFER", prepared], numbers


def limited(section: Section, subject: Subject, shares: tuple[float, ...], seeds: bool) -> None:
    """Rows at shares of the unlimited peak, planned and by the older rule."""
    section.columns = COLUMNS
    section.rows.append(["none", subject.peak / GIB, "–", subject.unlimited_ms, 1.0, *[None] * 7, "reference", None])
    for share in shares:
        limit = int(share * subject.peak)
        name = f"{share:.0%}"
        if limit < subject.floor:
            section.notes.append(f"{name} is below the floor of {subject.floor / GIB:.2f} GiB")
            continue
        times = {}
        for mode in ("auto", "seeds") if seeds else ("auto",):
            try:
                cells, numbers = subject.row(name, limit, mode)
            except DoesNotFit as error:
                section.notes.append(f"{name}, {mode}: {error.message}")
                continue
            section.rows.append(cells)
            times[mode] = numbers["ms"]
            section.checks.append(Check(f"{name}, {mode}: outputs equal", numbers["equal"], 1.0, least=True))
            if mode == "auto" and "bound" in numbers:
                section.checks.append(Check(f"{name}: measured ÷ bound", numbers["bound"], 1.05))
                section.checks.append(Check(f"{name}: predicted ÷ measured", numbers["predicted"], 1.1))
                section.checks.append(Check(f"{name}: predicted ÷ measured", numbers["predicted"], 0.9, least=True))
        if len(times) == 2:
            section.checks.append(Check(f"{name}: planned ÷ seeds", times["auto"] / times["seeds"], 1.0))


def training(section: Section, options: argparse.Namespace) -> None:
    """The MLP's training step; then torch."""
    subject = Subject(mlp_step(options.layers, options.hidden, options.batch), options.device, options.iterations)
    limited(section, subject, (0.3, 0.5, 0.7), seeds=True)
    try:
        for name, ms, peak in torch_step(options):
            section.notes.append(f"torch, {name}: {ms:.1f} ms a step, {peak / GIB:.2f} GiB at most")
    except ImportError:
        section.notes.append("torch is not installed")
    except RuntimeError as error:
        section.notes.append(f"torch: {error}")


def torch_step(options: argparse.Namespace) -> list[tuple[str, float, int]]:
    """Name, milliseconds and most bytes of torch's step: as it is, and with activations on the host."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    weights = [
        (torch.randn(options.hidden, options.hidden, device="cuda") * options.hidden**-0.5).requires_grad_()
        for _ in range(options.layers)
    ]
    x = torch.rand(options.batch, options.hidden, device="cuda")

    def step() -> None:
        h = x
        for w in weights:
            h = torch.relu(h @ w)
        torch.nn.functional.softplus(h).sum().backward()
        with torch.no_grad():
            for w in weights:
                w -= 1e-3 * w.grad
                w.grad = None

    found = []
    for name, hooks in (("all on the GPU", None), ("save_on_cpu, pinned", torch.autograd.graph.save_on_cpu)):
        torch.cuda.reset_peak_memory_stats()
        samples = []
        for run in range(2 + options.iterations):
            torch.cuda.synchronize()
            started = time.perf_counter()
            if hooks is None:
                step()
            else:
                with hooks(pin_memory=True):
                    step()
            torch.cuda.synchronize()
            if run >= 2:
                samples.append(1e3 * (time.perf_counter() - started))
        found.append((name, statistics.median(samples), torch.cuda.max_memory_allocated()))
    return found


def streaming(section: Section, options: argparse.Namespace) -> None:
    """Weights that live on the host, alone and with limits."""
    made = streamed_blocks(options.blocks, options.width, options.tokens)
    subject = Subject(made, options.device, options.iterations)
    limited(section, subject, (0.3, 0.5, 0.7), seeds=False)


def twice(section: Section, options: argparse.Namespace) -> None:
    """A graph of twice its limit."""
    count = max(int(options.large_gib * 4), 4)
    subject = Subject(large_chain(count, GIB // 16), options.device, 2)
    limit = subject.peak // 2
    section.columns = COLUMNS
    section.rows.append(["none", subject.peak / GIB, "–", subject.unlimited_ms, 1.0, *[None] * 7, "reference", None])
    cells, numbers = subject.row("half", limit, "auto")
    section.rows.append(cells)
    section.checks.append(Check("outputs equal", numbers["equal"], 1.0, least=True))


def any_limit(section: Section, options: argparse.Namespace) -> None:
    """Random limits on a small training step, compared byte for byte."""
    layers = min(options.layers, 24)
    subject = Subject(mlp_step(layers, 256, 1024), options.device, 3)
    chance = random.Random(options.seed)
    wrong, moved, slowest = 0, 0, 0.0
    for _ in range(options.random):
        limit = chance.randint(int(1.05 * subject.floor), subject.peak)
        mode = chance.choice(("auto", "auto", "seeds"))
        try:
            report, _ = subject.run(limit, mode, subject.profile)
        except DoesNotFit:
            section.notes.append(f"{limit:,} bytes, {mode}: no plan found")
            continue
        wrong += digests(report) != subject.digests
        moved += report.program.offload is not None
        slowest = max(slowest, (report.total.median if report.total else 0) / 1e6 / subject.unlimited_ms)
    section.notes.append(
        f"{options.random} runs, {moved} with transfers, {wrong} differ; slowest {slowest:.2f} × unlimited"
    )
    section.checks.append(Check("runs that differ", float(wrong), 0.0))


def main() -> None:
    """Run what was asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--large-gib", type=float, default=16.0)
    parser.add_argument("--random", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see whether it works")
    parser.add_argument("--only", default="training,streaming,twice,random")
    parser.add_argument("--name", default="h200_offload")
    options = parser.parse_args()
    if options.quick:
        options.layers, options.hidden, options.batch, options.random = 8, 64, 256, 3
        options.blocks, options.width, options.tokens, options.large_gib = 2, 32, 64, 0.01
    parts = {
        "training": (f"Training step, {options.layers} layers of {options.hidden}, batch {options.batch}", training),
        "streaming": (f"Weights on the host, {options.blocks} blocks of width {options.width}", streaming),
        "twice": (f"A graph of {options.large_gib:g} GiB in half of it", twice),
        "random": ("Random limits", any_limit),
    }
    chosen = [parts[name] for name in options.only.split(",")]
    sections = [run_section(title, partial(work, options=options)) for title, work in chosen]
    facts = machine(device_name(options.device))
    page = markdown(head_lines("Graphs under a memory limit", facts), sections)
    write_results(Path(__file__).parent / "results", options.name, page, document(facts, sections))
    print(page)


def device_name(device: str) -> str:
    """The product's name."""
    from kgrun.runtime.devices import open_device

    opened, _ = open_device(device)
    try:
        return opened.info.name
    finally:
        opened.close()


if __name__ == "__main__":
    main()
