"""Vendor libraries on the fake driver: opened once, told the precision, replaced by a launch where they cannot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kgrun.graphs.errors import DeviceUnavailable
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.devices.cuda_libraries import Libraries, NotSupported
from kgrun.runtime.program import KernelCode, Launch, LibraryCall, Pointer, Step
from tests.runtime.devices.fake_cuda_driver import FakeDriver

CODE = KernelCode('extern "C" __global__ void k() {}', None, "cuda", "k.cu", "k")
LAUNCH = Launch(CODE, (), (1, 1, 1), (1, 1, 1))
CONV = LibraryCall("cudnn", "conv", {}, (Pointer(0),), LAUNCH)


class FakeLibrary:
    version = "1.2"

    def __init__(self, refuses: bool = False) -> None:
        self.refuses, self.calls, self.closed = refuses, 0, 0

    def prepare(self, call: LibraryCall, address: Any) -> Callable[[], None]:
        if self.refuses:
            raise NotSupported("no engine")

        def run() -> None:
            self.calls += 1

        return run

    def close(self, lost: bool) -> None:
        self.closed += 1


def step(work: LibraryCall) -> Step:
    return Step(0, "conv", 0, "Conv", "compute", work, (0,), (1,))


@pytest.mark.parametrize("refuses", [False, True])
def test_a_launch_stands_in_for_what_a_library_cannot(monkeypatch: pytest.MonkeyPatch, refuses: bool) -> None:
    driver, library, opened = FakeDriver(), FakeLibrary(refuses), []
    monkeypatch.setattr(Libraries, "_opened", lambda self, call: opened.append(self.precision) or library)
    device = CudaDevice(driver=driver, precision="tf32")
    prepared = [device.prepare(step(CONV), lambda _: 512) for _ in range(2)]
    for each in prepared:
        each.launch()
    assert opened == ["tf32"]
    assert device.info.versions["cudnn"] == "1.2"
    assert (library.calls, driver.calls.count("launch")) == ((0, 2) if refuses else (2, 0))
    device.close()
    assert library.closed == 1


def test_without_a_launch_to_stand_in_the_library_must_be_there() -> None:
    device = CudaDevice(driver=FakeDriver())
    with pytest.raises(DeviceUnavailable, match=r"nothing\.at_all"):
        device.prepare(step(LibraryCall("nothing", "at_all", {}, ())), lambda _: 512)
    device.close()


class FakeGraph:
    """Records what the frontend's graph is asked for."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **words: Any) -> Any:
            self.log.append((name, args, words))
            return SimpleTensor(self.log) if name in ("tensor", "conv_fprop", "bias") else None

        return call


class SimpleTensor:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        def setter(*args: Any) -> SimpleTensor:
            self.log.append((name, args, {}))
            return self

        return setter


CONFIG = {
    "dtype": "float32", "x": (1, 8, 5, 5), "w": (4, 8, 3, 3), "y": (1, 4, 5, 5), "strides": (1, 1), "dilations": (1, 1),
    "begin": (1, 1), "end": (1, 1), "workspace": 4096,
}  # fmt: skip


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    log: list[Any] = []
    names = SimpleNamespace
    module = names(
        create_handle=lambda: "handle",
        destroy_handle=lambda handle: log.append(("destroy_handle", (handle,), {})),
        set_stream=lambda handle, stream: log.append(("set_stream", (handle, stream), {})),
        backend_version=lambda: 91002,
        data_type=names(FLOAT="f", HALF="h", BFLOAT16="b"),
        heur_mode=names(A="a", FALLBACK="fallback"),
        numerical_note=names(TENSOR_CORE="tensor cores", DOWN_CONVERT_INPUTS="down"),
        build_plan_policy=names(HEURISTICS_CHOICE="choice"),
        pygraph=lambda **words: FakeGraph(log),
    )
    monkeypatch.setitem(sys.modules, "cudnn", module)  # type: ignore[arg-type]
    return log


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_cudnn_keeps_float32_unless_tf32_is_asked_for(cudnn: list[Any], precision: Any) -> None:
    driver = FakeDriver()
    libraries = Libraries(driver, precision, {})
    args = (Pointer(0), Pointer(1), None, Pointer(2), Pointer(3))
    run = libraries.prepare(LibraryCall("cudnn", "conv", CONFIG, args), lambda pointer: 1000 + pointer.buffer)
    run()
    names = [name for name, _, _ in cudnn]
    assert ("deselect_numeric_notes" in names) == (precision == "float32")
    assert ("deselect_workspace_greater_than", (4096,), {}) in cudnn
    assert ("set_stream", ("handle", driver.stream), {}) in cudnn
    name, (pack, workspace), words = cudnn[-1]
    assert (name, sorted(pack.values()), workspace, words) == (
        "execute",
        [1000, 1001, 1002],
        1003,
        {"handle": "handle"},
    )
    libraries.close(lost=False)
    assert cudnn[-1][0] == "destroy_handle"
    assert "bias" not in names


def test_a_convolution_that_no_engine_takes_is_not_supported(cudnn: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise RuntimeError("no engine")

    monkeypatch.setattr(FakeGraph, "validate", refuse, raising=False)
    libraries = Libraries(FakeDriver(), "float32", {})
    args = (Pointer(0), Pointer(1), None, Pointer(2), Pointer(3))
    with pytest.raises(NotSupported, match="no engine"):
        libraries.prepare(LibraryCall("cudnn", "conv", CONFIG, args), lambda _: 0)
