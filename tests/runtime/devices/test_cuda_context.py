"""The context's life over a stand-in for PyCUDA: every way out leaves an empty stack and prints nothing."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import numpy as np
import pytest

from kgrun.graphs.errors import DeviceFault, DeviceUnavailable, UsageError
from kgrun.runtime.devices import cuda_pycuda
from kgrun.runtime.devices.cuda import CudaDevice, gpu_status
from kgrun.runtime.program import KernelCode, Launch, Pointer, Step
from tests.runtime.devices.fake_pycuda import FakePyCuda

pytest.importorskip("cuda.bindings")


@pytest.fixture
def pycuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePyCuda]:
    fake = FakePyCuda()
    package = types.ModuleType("pycuda")
    package.driver = fake  # type: ignore[attr-defined]
    package.__spec__ = ModuleSpec("pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", fake)
    yield fake
    cuda_pycuda._close_all()
    gc.collect()
    assert fake.stack == []
    assert [text for text in fake.warned if not text.startswith("muted")] == []
    assert set(fake.retained.values()) <= {0}


def use(device: CudaDevice) -> int:
    source = 'extern "C" __global__ void k(float* y) { *y = 1; }'
    launch = Launch(KernelCode(source, None, "cuda", "k.cu", "k"), (Pointer(0),), (1, 1, 1), (32, 1, 1))
    address = device.allocate(64)
    device.prepare(Step(0, "k", 0, "k", "compute", launch, (), ()), lambda _: address).launch()
    device.upload(address, np.zeros(16, np.float32))
    return address


def test_opening_and_closing_leaves_nothing(pycuda: FakePyCuda) -> None:
    device = CudaDevice(1)
    assert (device.info.name, device.info.arch, device.info.index) == ("GPU 1", "sm_90", 1)
    device.free(use(device))
    device.close()
    gc.collect()
    assert pycuda.live == set()
    assert pycuda.retained == {1: 0}


def test_S1_a_gpu_opened_again_shares_the_context_that_is_there(pycuda: FakePyCuda) -> None:
    first, second = CudaDevice(0), CudaDevice(0)
    assert pycuda.retained == {0: 2}
    assert first.driver.context is not None
    first.close()
    second.free(use(second))
    second.close()
    assert pycuda.retained == {0: 0}


def test_two_devices_take_turns_with_one_context_pushed(pycuda: FakePyCuda) -> None:
    first, second = CudaDevice(0), CudaDevice(1)
    for device in (first, second, first):
        use(device)
        assert [context.index for context in pycuda.stack] == [device.info.index]
    first.close()
    use(second)
    assert [context.index for context in pycuda.stack] == [1]
    second.close()


@pytest.mark.parametrize("call", ["retain", "push", "stream"])
def test_S2_S5_an_opening_that_fails_leaves_nothing(pycuda: FakePyCuda, call: str) -> None:
    pycuda.fail = call
    with pytest.raises(DeviceUnavailable):
        CudaDevice()
    gc.collect()
    assert pycuda.stack == []


def test_a_lost_context_is_detached_before_its_objects_go(pycuda: FakePyCuda) -> None:
    device = CudaDevice()
    use(device)
    pycuda.lost = True
    with pytest.raises(DeviceFault):
        device.synchronize()
    device.close()
    gc.collect()
    assert pycuda.warned == ["muted: detach"]


def test_a_device_nobody_closed_is_closed_at_exit(pycuda: FakePyCuda) -> None:
    use(CudaDevice())
    pycuda.lost = True
    cuda_pycuda._close_all()
    assert pycuda.stack == []


def test_ordinals_are_checked_with_the_devices_listed(pycuda: FakePyCuda) -> None:
    with pytest.raises(UsageError) as caught:
        CudaDevice(9)
    assert caught.value.help == "devices: cuda:0 GPU 0, cuda:1 GPU 1"
    assert caught.value.exit == 2


def test_S3_no_device_is_unavailable_in_one_line(pycuda: FakePyCuda) -> None:
    pycuda.devices = 0
    with pytest.raises(DeviceUnavailable, match="no GPU is visible") as caught:
        CudaDevice()
    assert caught.value.exit == 7
    assert gpu_status().reason == "GPU: no GPU is visible"


def test_without_pycuda_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    with pytest.raises(DeviceUnavailable) as caught:
        CudaDevice()
    assert "kgrun[cuda]" in str(caught.value.help)
    assert "\n" not in caught.value.message


def test_the_status_lists_devices(pycuda: FakePyCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {row.name: row.found for row in gpu_status().rows}
    assert found["NVIDIA driver"] == "CUDA 13.0"
    assert found["cuda:1"] == "GPU 1, 128 GiB, capability 9.0"


def test_U2_the_stream_is_made_before_any_memory_is_taken(pycuda: FakePyCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    stream, allocate = pycuda.Stream, pycuda.mem_alloc
    monkeypatch.setattr(pycuda, "Stream", lambda *flags: made.append("stream") or stream(*flags))
    monkeypatch.setattr(pycuda, "mem_alloc", lambda nbytes: made.append("memory") or allocate(nbytes))
    device = CudaDevice(0)
    device.free(use(device))
    assert made == ["stream", "memory"]
    device.close()
