"""The kernels of the CPU device's corpus give a GPU's user the same results: within the same tolerances of numpy."""

from __future__ import annotations

import pytest

from kgrun.runtime.devices.cuda import CudaDevice
from tests.gpu.gpu_corpus import run_case
from tests.runtime.compile.ptx.corpus import CASES
from tests.runtime.compile.ptx.harness import Case

# %warpid is a slot of the hardware, not the warp's number in its block.
PORTABLE = [case for case in CASES if case.name != "lane and warp registers"]


@pytest.mark.parametrize("case", PORTABLE, ids=[case.name for case in PORTABLE])
def test_a_gpu_agrees_with_numpy(device: CudaDevice, case: Case) -> None:
    found = run_case(device, case)
    assert found.ok, f"{found.wrong} of {found.elements} elements wrong, worst {found.worst:.3g} × the tolerance"
