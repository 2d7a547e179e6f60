"""Side by side: kgrun's planner against greedy by size, best fit, CP-SAT and omnimalloc on packing problems.

    python benchmarks/planner.py FOLDER [--quick] [--peer-seconds 3]

FOLDER is searched for minimalloc CSV files (`.csv`, `.csv.gz`); synthetic problems follow. Heights are shown divided by
the lower bound (largest sum of live bytes), times in CPU seconds. CP-SAT (ortools) and omnimalloc take part where they
are installed, on problems of up to --peer-buffers buffers. Every plan is verified; a faulty one shows as "wrong".
"""

from __future__ import annotations

import argparse
import random
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kgrun.runtime.memory.packing import PackOptions, Problem, lower_bound, pack, read_minimalloc_csv, verify

GRAPHED = 30_000  # buffers up to which the methods that walk the conflict graph take part


def nested(n: int, seed: int) -> Problem:
    """Forward and backward: a buffer of step i lives until the mirrored step; gradients live one step."""
    r = random.Random(seed)
    lower, upper = array("q"), array("q")
    for i in range(n // 2):
        lower.extend((i, n - i - 1))
        upper.extend((n - i, n - i + 1))
    return Problem(lower, upper, array("q", [256 * r.randint(1, 4096) for _ in range(len(lower))]))


def uniform(n: int, seed: int, longest: int) -> Problem:
    """Starts uniform over n steps, lives uniform up to `longest`, sizes uniform up to 1 MiB."""
    r = random.Random(seed)
    lower = array("q", [r.randrange(n) for _ in range(n)])
    upper = array("q", [low + r.randint(1, longest) for low in lower])
    return Problem(lower, upper, array("q", [r.randint(1, 1 << 20) for _ in range(n)]))


def problems(folder: Path | None, quick: bool) -> Iterator[tuple[str, Problem]]:
    """The files of the folder and the synthetic problems."""
    for file in sorted(folder.rglob("*.csv*")) if folder else ():
        yield file.name.removesuffix(".gz").removesuffix(".csv"), read_minimalloc_csv(file)
    for n in (10_000,) if quick else (100_000, 1_000_000):
        yield f"nested-{n:,}", nested(n, 0)
    n = 10_000 if quick else 100_000
    for longest in (n, n // 10, n // 100):
        yield f"uniform-{n:,}-life-{longest:,}", uniform(n, 0, longest)


def by_cpsat(problem: Problem, seconds: float) -> Sequence[int]:
    """CP-SAT with two-dimensional no-overlap, two workers."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    total = sum(problem.sizes)
    height = model.new_int_var(lower_bound(problem), total, "height")
    starts, across, along = [], [], []
    for i, (low, high, size) in enumerate(zip(problem.lowers, problem.uppers, problem.sizes, strict=True)):
        start = model.new_int_var(0, total - size, f"o{i}")
        starts.append(start)
        along.append(model.new_fixed_size_interval_var(low, high - low, f"t{i}"))
        across.append(model.new_fixed_size_interval_var(start, size, f"m{i}"))
        model.add(start + size <= height)
    model.add_no_overlap_2d(along, across)
    model.minimize(height)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise TimeoutError("no plan in time")
    return [solver.value(start) for start in starts]


def by_omnimalloc(problem: Problem, _: float) -> Sequence[int]:
    """omnimalloc with its defaults; it takes no time limit."""
    import omnimalloc

    lives = zip(problem.lowers, problem.uppers, problem.sizes, strict=True)
    given = [omnimalloc.Allocation(id=i, size=size, start=low, end=high) for i, (low, high, size) in enumerate(lives)]
    offsets = {allocation.id: allocation.offset for allocation in omnimalloc.allocate(given)}
    return [offsets[i] for i in range(len(problem))]


def measured(problem: Problem, bound: int, plan: Callable[[], Sequence[int]]) -> str:
    """Height over the bound and CPU seconds of one plan, or why there is none."""
    begin = time.process_time()
    try:
        offsets = plan()
    except ImportError:
        return "not installed"
    except Exception as error:  # a peer's failure is a result
        return f"{type(error).__name__}"
    spent = time.process_time() - begin
    if verify(problem, offsets):
        return "wrong"
    height = max(map(int.__add__, offsets, problem.sizes), default=0)
    return f"{height / max(bound, 1):.6f} {spent:8.3f}"


def row(name: str, problem: Problem, arguments: argparse.Namespace) -> float:
    """Print a line of the table; CPU seconds kgrun took."""
    begin = time.process_time()
    packing = pack(problem)
    spent = time.process_time() - begin
    begin = time.process_time()
    faults = verify(problem, packing.offsets)
    checking = time.process_time() - begin
    bound = lower_bound(problem)
    cells = [f"{name:28} {len(problem):9,} {bound:16,} {packing.height:16,}"]
    ratio = packing.height / max(bound, 1)
    cells.append(f"{ratio:.6f} {'optimal' if packing.optimal else 'open   '} {spent:8.3f} {packing.nodes:8,}")
    cells.append(f"{'wrong' if faults else 'ok'} {checking:6.3f}")
    for method in ("greedy-size", "best-fit"):
        few = len(problem) <= GRAPHED and not (arguments.quick and len(problem) > 5000)
        options = PackOptions(method=method)
        cells.append(measured(problem, bound, lambda o=options: pack(problem, o).offsets) if few else "-")
    if not arguments.no_peers:
        for peer in (by_cpsat, by_omnimalloc):
            few = len(problem) <= arguments.peer_buffers
            cells.append(measured(problem, bound, lambda f=peer: f(problem, arguments.peer_seconds)) if few else "-")
    print(" | ".join(cells), flush=True)
    return spent


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder of packing problems")
    parser.add_argument("--quick", action="store_true", help="small synthetic problems, small graphs only")
    parser.add_argument("--no-peers", action="store_true", help="leave CP-SAT and omnimalloc out")
    parser.add_argument("--peer-seconds", type=float, default=3.0, help="time limit of CP-SAT a problem")
    parser.add_argument("--peer-buffers", type=int, default=2000, help="largest problem the peers get")
    arguments = parser.parse_args()
    print(
        "problem | buffers | bound | kgrun height, ratio, proof, CPU s, nodes | verifier | greedy by size | best fit",
        end="",
    )
    print("" if arguments.no_peers else " | CP-SAT | omnimalloc")
    total = sum(row(name, problem, arguments) for name, problem in problems(arguments.folder, arguments.quick))
    print(f"kgrun, CPU seconds in all: {total:.2f}")


if __name__ == "__main__":
    main()
