"""The CPU device's corpus of kernels on a GPU, against numpy: a table of every kernel, exit 1 where one disagrees.

    python benchmarks/gpu_corpus.py [--out benchmarks/results/h200_corpus.md]

The same kernels, arguments and tolerances hold the CPU device to numpy in tests/runtime/compile/ptx, so that a table
without a wrong element says that both devices agree. Needs no llvmlite.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from harness import Check, Section, head_lines, machine, markdown, run_section

sys.path.insert(0, str(Path(__file__).parents[1]))


def corpus(section: Section) -> None:
    """A row for each kernel."""
    from kgrun.runtime.devices.cuda import CudaDevice
    from tests.gpu.gpu_corpus import run_case
    from tests.runtime.compile.ptx.corpus import CASES

    section.columns = ("kernel", "elements", "wrong", "worst ÷ tolerance", "compile and run, ms")
    device = CudaDevice()
    failed = 0
    try:
        for case in CASES:
            started = time.perf_counter()
            try:
                found = run_case(device, case)
                row = found.elements, found.wrong, found.worst
                failed += not found.ok
            except Exception as error:
                row = None, f"{type(error).__name__}: {error}".splitlines()[0], None
                failed += 1
            section.rows.append((case.name, *row, (time.perf_counter() - started) * 1e3))
    finally:
        device.close()
    section.checks.append(Check("kernels that disagree with numpy", failed, 0))
    section.notes.append(f"{len(CASES)} kernels; integers must be equal, floats lie within each kernel's own tolerance")


def main() -> int:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    from kgrun.runtime.devices.cuda import gpu_status

    status = gpu_status()
    if not status.usable:
        print(f"no GPU: {status.reason}", file=sys.stderr)
        return 7
    section = run_section("The corpus on a GPU", corpus)
    page = markdown(head_lines("The CPU device's kernels on a GPU", machine("GPU")), [section])
    print(page)
    if chosen.out:
        chosen.out.write_text(page)
    return int(section.error is not None or not all(check.ok for check in section.checks))


if __name__ == "__main__":
    sys.exit(main())
