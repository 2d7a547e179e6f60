"""What the tests of the CUDA device share: a device over a fake driver."""

from __future__ import annotations

import pytest

from kgrun.runtime.devices.cuda import CudaDevice
from tests.runtime.devices.fake_cuda_driver import FakeDriver


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def device(driver: FakeDriver) -> CudaDevice:
    return CudaDevice(driver=driver)
