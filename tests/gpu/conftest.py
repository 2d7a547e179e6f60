"""GPU tests run where a GPU and its software are, and are skipped with the reason elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kgrun.runtime import measure
from kgrun.runtime.devices import cuda_timing
from kgrun.runtime.devices.cuda import CudaDevice, gpu_status

_FEW = {
    measure: {"MAX_STEP_RUNS": 1, "_MAX_WARMUP": 1},
    cuda_timing: {"_WANTED_NS": 1, "_WANTED_NS_OF_MANY": 1, "_LEAST_REPEATS": 2, "_LEAST_REPEATS_AFTER_LEAD": 1,
                  "_CALIBRATION_RUNS": 1, "_FEWEST_RUNS": 1, "_LEAST_RUNS": 1, "_RUNS_OF_ONE": 1},
}  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--few-repeats", action="store_true", help="measure hardly at all: for compute-sanitizer")


@pytest.fixture(autouse=True, scope="session")
def few_repeats(pytestconfig: pytest.Config) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if pytestconfig.getoption("few_repeats", False):
            for module, values in _FEW.items():
                for name, value in values.items():
                    patch.setattr(module, name, value)
        yield


@pytest.hookimpl(tryfirst=True)  # before -m is applied
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    status = gpu_status()
    for item in items:
        if item.path.parent.name != "gpu":
            continue
        item.add_marker(pytest.mark.gpu)
        if not status.usable:
            item.add_marker(pytest.mark.skip(reason=status.reason))


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    opened = CudaDevice()
    yield opened
    opened.close()
