"""GPU tests run where a GPU and its software are, and are skipped with the reason elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kgrun.runtime.devices.cuda import CudaDevice, gpu_status


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
