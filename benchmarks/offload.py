"""Transfer schedules against their bounds: simulated runs of planned offload and of the older rule, no GPU.

    python benchmarks/offload.py [--layers 96] [--no-lp] [--write]

`budget` is the memory that activations may take, as a share of their bytes; `ratio` what the link moves each way in the
forward pass, as a share of the same. Times are divided by those of the steps alone. `lp` is the linear program with
fractional offload, which no schedule can beat. --write puts the page into benchmarks/results.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from kgrun.runtime.memory.offload.bounds import fractional_ns
from kgrun.runtime.memory.offload.choose import best_schedule, seeds_choice
from kgrun.runtime.memory.offload.infeasible import floor
from kgrun.runtime.memory.offload.records import Problem, Rates, Tensor
from kgrun.runtime.memory.offload.simulate import full_load, simulate
from kgrun.runtime.memory.offload.stays import gaps_of, parts_of

MIB = 1 << 20
STEP_NS = 1e6
GOAL = 1.02


def problem(ns: Sequence[float], tensors: Sequence[Tensor], capacity: int, rate: float) -> Problem:
    """A problem of tensors that may all move."""
    elapsed = [0.0, *accumulate(ns)]
    gaps = [g for i, t in enumerate(tensors) for g in gaps_of(i, t, len(ns), elapsed) if g.steps]
    return Problem(ns, tensors, gaps, 0, capacity, Rates(rate, rate))


def chain(layers: int, budget: float, ratio: float, backward: float = 2.0) -> Problem:
    """Forward and backward over `layers` layers of equal size; a backward step takes `backward` forward steps."""
    steps = 2 * layers
    ns = [STEP_NS] * layers + [backward * STEP_NS] * layers
    tensors = []
    for i in range(layers):
        touches = sorted({i, min(i + 1, layers), steps - 1 - i})
        tensors.append(Tensor(i, f"a{i}", MIB, MIB, tuple(touches), frozenset([i])))
    total = layers * MIB
    return problem(ns, tensors, int(budget * total), ratio * total * 1e9 / (layers * STEP_NS))


def between(ns: Sequence[float], tensors: Sequence[Tensor], share: float, ratio: float) -> Problem:
    """`share` of the way from the floor to what all take; the link moves `ratio` of that in a run."""
    loose = problem(ns, tensors, 1, 1.0)
    most, least = int(full_load(loose).max()), floor(loose)[0]
    return problem(ns, tensors, int(least + share * (most - least)), ratio * most * 1e9 / sum(ns))


def streamed(layers: int, share: float, ratio: float, seed: int) -> Problem:
    """Weights of uneven size that each one step reads, run after run."""
    r = random.Random(seed)
    ns = [r.uniform(0.5, 1.5) * STEP_NS for _ in range(layers)]
    tensors = []
    for i in range(layers):
        size = int(r.uniform(0.5, 1.5) * MIB)
        tensors.append(Tensor(2 * i, f"w{i}", size, size, (i,), frozenset(), persistent=True))
        touches = tuple(t for t in (i, i + 1) if t < layers)
        tensors.append(Tensor(2 * i + 1, f"a{i}", size // 8, size // 8, touches, frozenset([i])))
    return between(ns, tensors, share, ratio)


def trained(layers: int, share: float, ratio: float, seed: int) -> Problem:
    """Weights, activations and gradients of uneven size; the backward step updates its weight in place."""
    r = random.Random(seed)
    steps = 2 * layers
    ns = [r.uniform(0.5, 1.5) * STEP_NS for _ in range(layers)]
    ns += [2 * t for t in reversed(ns)]
    tensors = []
    for i in range(layers):
        back = steps - 1 - i
        weight, size = (int(r.uniform(0.5, 1.5) * MIB) for _ in range(2))
        tensors.append(Tensor(3 * i, f"w{i}", weight, weight, (i, back), frozenset([back]), persistent=True))
        tensors.append(Tensor(3 * i + 1, f"a{i}", size, size, tuple(sorted({i, i + 1, back})), frozenset([i])))
        touches = tuple(t for t in (back, back + 1) if t < steps)
        tensors.append(Tensor(3 * i + 2, f"g{i}", size, size, touches, frozenset([back])))
    return between(ns, tensors, share, ratio)


def row(name: str, made: Problem, lp: bool) -> tuple[list[str], float | None]:
    """Cells of one problem, and ours ÷ LP."""
    started = time.process_time()
    best = best_schedule(made, made.capacity)
    seconds = time.process_time() - started
    rule = seeds_choice(made, made.capacity)
    old = None if rule is None else simulate(made, parts_of(made, rule), prefetch=False)
    alone = sum(made.ns)
    if best is None:
        return [name, "–", "–", "–", "–", f"{seconds:.2f}"], None
    total = best[0].total_ns
    bound = alone if total <= alone * (1 + 1e-9) else fractional_ns(made, 10**7)[0] if lp else None
    cells = [
        name,
        f"{old.total_ns / alone:.3f}" if old is not None else "–",
        f"{total / alone:.3f}",
        f"{bound / alone:.3f}" if bound is not None else "–",
        f"{total / bound:.4f}" if bound is not None else "–",
        f"{seconds:.2f}",
    ]
    return cells, None if bound is None else total / bound


def tables(layers: int) -> Iterator[tuple[str, list[tuple[str, Callable[[], Problem], bool]]]]:
    """Titles, and for each row its name, its problem and whether the goal holds for it."""
    for backward in (2.0, 1.0):
        rows: list[tuple[str, Callable[[], Problem], bool]] = []
        for budget in (0.3, 0.5, 0.7):
            for ratio in (0.5, 0.75, 1.0, 2.0):
                name = f"budget {budget}, ratio {ratio}"
                rows.append((name, lambda b=budget, r=ratio, k=backward: chain(layers, b, r, k), ratio >= 0.75))  # type: ignore[misc]
        yield f"{layers} layers forward and backward, a backward step = {backward:g} forward steps", rows
    for title, make, size in (("Streamed weights", streamed, 24), ("Training with updated weights", trained, 16)):
        rows = []
        for share in (0.2, 0.4, 0.7):
            for ratio in (0.75, 1.5, 3.0):
                name = f"share {share}, ratio {ratio}"
                rows.append((name, lambda m=make, n=size, s=share, r=ratio: m(n, s, r, 1), False))  # type: ignore[misc]
        yield f"{title}, {size} layers of uneven size", rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--no-lp", action="store_true", help="leave out the linear programs, which take minutes")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/offload.md")
    options = parser.parse_args()
    command = f"python benchmarks/offload.py{f' --layers {options.layers}' if options.layers != 96 else ''}"
    date = time.strftime("%Y-%m-%d", time.gmtime())
    lines = [
        "# Transfer schedules against their bounds",
        "",
        f"`{command} --write`, {date}. Simulated runs ÷ the steps alone; `seconds` is CPU time of planning.",
    ]
    met = total = 0
    for title, rows in tables(options.layers):
        lines += [
            "",
            f"## {title}",
            "",
            "| problem | seeds | kgrun | lp | kgrun ÷ lp | seconds |",
            "| --- |" + " --- |" * 5,
        ]
        for name, make, goal in rows:
            cells, ratio = row(name, make(), not options.no_lp)
            print(title, cells, flush=True)
            lines.append("| " + " | ".join(cells) + " |")
            if goal and ratio is not None:
                total += 1
                met += ratio <= GOAL
    lines += ["", f"kgrun ÷ lp ≤ {GOAL} where ratio ≥ 0.75 and budget ≥ 0.3: {met} of {total} chains."]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        (Path(__file__).parent / "results" / "offload.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
