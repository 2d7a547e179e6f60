"""Checks from outside, on a GPU that is played: what a kernel did to memory is told by what memory holds."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.errors import UsageError
from kgrun.runtime import Session
from kgrun.runtime.checks import Finding
from kgrun.runtime.devices.cuda import CudaDevice
from tests.runtime.devices.fake_cuda_driver import FakeDriver
from tests.support import graph, node, tensor

pytest.importorskip("cuda.bindings")

F = "float32"
SOURCE = 'extern "C" __global__ void k(float* x, float* y) {}'
KERNELS = {"k": {"source": SOURCE, "entry": "k"}}
Array = np.ndarray[Any, Any]
Play = Callable[[Callable[[int, int], Array], int, int], None]


def chain(count: int = 1, out: str = F, **more: Any) -> Any:
    """x -> t0 -> … of 300 elements, each made by the kernel `k`."""
    names = ["x", *(f"t{i}" for i in range(count))]
    tensors = {name: tensor(None, (300,), out) for name in names[1:]}
    tensors |= {"x": tensor("input", (300,), F, init={"fill": 1.0})}
    nodes = [node(f"n{i}", [a], [b], **more) for i, (a, b) in enumerate(pairwise(names))]
    return graph(nodes, tensors, [names[-1]], kernels=KERNELS)


def run(play: Play, *checks: str, made: Any = None, iterations: int = 1) -> tuple[Finding, ...]:
    """Run with `play(view, x, y)` in place of the kernel; the findings."""
    driver = FakeDriver()
    device = CudaDevice(driver=driver)

    def on_launch(symbol: str, grid: Any, block: Any, packed: bytes, shared: int) -> None:
        play(driver.view, *struct.unpack("<QQ", packed[:16]))

    driver.on_launch = on_launch
    try:
        with Session(made or chain(), device=device, checks=checks) as session:
            report = session.run(iterations=iterations)
        assert report.checked == checks or checks == ("all",)
        return report.findings
    finally:
        device.close()


def good(view: Callable[[int, int], Array], x: int, y: int) -> None:
    view(y, 1200)[:] = view(x, 1200)


def test_a_good_kernel_has_no_findings() -> None:
    assert run(good, "all", made=chain(4), iterations=3) == ()


def test_init_names_the_elements_that_nothing_wrote() -> None:
    def play(view: Any, x: int, y: int) -> None:
        view(y, 1200)[: 4 * 297] = view(x, 4 * 297)

    (found,) = run(play, "init")
    assert (found.check, found.node, found.tensor, found.element, found.count) == ("init", "n0", "t0", 297, 3)
    assert "never wrote t0[297]: 3 of 300 elements" in found.message


def test_time_06_a_kernel_that_does_nothing_is_found_although_memory_held_a_result() -> None:
    runs = []

    def play(view: Any, x: int, y: int) -> None:
        runs.append(1)
        if len(runs) == 1:
            good(view, x, y)

    (found,) = run(play, "init", iterations=2)
    assert found.count == 300


def test_time_06_a_kernel_that_changes_its_input_is_found() -> None:
    def play(view: Any, x: int, y: int) -> None:
        good(view, x, y)
        view(x + 20, 1)[:] ^= 1

    (found,) = run(play, "readonly")
    assert (found.check, found.tensor, found.element, found.count) == ("readonly", "x", 5, 1)
    assert run(play, "nan", "redzone") == ()


def test_an_input_that_is_taken_over_may_change() -> None:
    def play(view: Any, x: int, y: int) -> None:
        view(x, 1200)[:] = 0

    tensors = {"w": tensor("parameter", (300,), F, init={"fill": 1.0}), "w2": tensor(None, (300,), F)}
    nodes = [node("n0", ["w"], ["w2"], args=["w", "w"], inplace={"w2": "w"})]
    assert run(play, "all", made=graph(nodes, tensors, ["w2"], kernels=KERNELS)) == ()


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")])
def test_nan_names_the_first_kernel_alone(value: float, word: str) -> None:
    made = []

    def play(view: Any, x: int, y: int) -> None:
        good(view, x, y)
        made.append(y)
        if len(made) == 2:
            view(y, 1200).view(F)[7] = value

    (found,) = run(play, "nan", made=chain(4))
    assert (found.node, found.tensor, found.element) == ("n1", "t1", 7)
    assert f"made t1[7] {word}: 1 of 300 elements" in found.message


def test_nan_that_comes_with_an_input_is_no_kernels_fault() -> None:
    made = chain(3)
    driver = FakeDriver()
    device = CudaDevice(driver=driver)
    driver.on_launch = lambda s, g, b, packed, n: good(driver.view, *struct.unpack("<QQ", packed[:16]))
    given = np.ones(300, F)
    given[3] = -np.inf
    with Session(made, device=device, checks=["nan"]) as session:
        assert session.run({"x": given}).findings == ()
    device.close()


def test_elements_that_nothing_wrote_are_not_called_nan_too() -> None:
    def play(view: Any, x: int, y: int) -> None:
        view(y, 1200)[: 4 * 100] = view(x, 4 * 100)

    assert [found.check for found in run(play, "init", "nan")] == ["init"]


@pytest.mark.parametrize(
    ("offset", "count", "words"),
    [
        (1200, 4, "wrote behind 't1': 4 bytes, the nearest 1 from its end"),
        (1208, 8, "wrote behind 't1': 8 bytes, the nearest 9 from its end"),
        (-4, 4, "wrote before 't1': 4 bytes, the nearest 1 from its start"),
        (2000, 2, "wrote behind 't1': 2 bytes, the nearest 801 from its end"),
    ],
)
def test_redzones_name_tensor_and_kernel(offset: int, count: int, words: str) -> None:
    calls = []

    def play(view: Any, x: int, y: int) -> None:
        good(view, x, y)
        calls.append(y)
        if len(calls) == 2:
            view(y + offset, count)[:] = 0

    (found,) = run(play, "redzone", made=chain(3))
    assert (found.node, found.tensor, found.check) == ("n1", "t1", "redzone")
    assert words in found.message


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_results_of_any_type_are_watched(dtype: str) -> None:
    nbytes = 300 * np.dtype(dtype).itemsize

    def play(view: Any, x: int, y: int) -> None:
        view(y, nbytes)[: nbytes // 2] = 0xFF

    (found,) = run(play, "init", made=chain(out=dtype))
    assert (found.element, found.count) == (150, 150)


def test_what_the_node_clears_is_written() -> None:
    assert run(lambda view, x, y: None, "all", made=chain(clear=["t0"])) == ()


def test_a_fault_is_one_finding_however_often_it_happens() -> None:
    def play(view: Any, x: int, y: int) -> None:
        good(view, x, y)
        view(y + 1200, 4)[:] = 0

    assert len(run(play, "redzone", iterations=5)) == 1


def test_a_gpu_does_not_follow_accesses() -> None:
    device = CudaDevice(driver=FakeDriver())
    with pytest.raises(UsageError, match="check 'race'"):
        Session(chain(), device=device, checks=["race"])
    device.close()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "bool"])
def test_copied_poison_is_no_fault_of_the_copying_kernel(dtype: str) -> None:
    names = ["x", "a", "b", "c"]
    tensors = {name: tensor("input" if name == "x" else None, (300,), dtype) for name in names}
    tensors["x"]["init"] = {"fill": 1}
    nodes = [node(f"n{i}", [a], [b]) for i, (a, b) in enumerate(pairwise(names))]
    nbytes, calls = tensor_bytes(dtype), []

    def play(view: Any, x: int, y: int) -> None:
        calls.append(y)
        part = nbytes // 2 if len(calls) == 1 else nbytes
        view(y, part)[:] = view(x, part)

    (found,) = run(play, "init", "nan", made=graph(nodes, tensors, ["c"], kernels=KERNELS))
    assert (found.check, found.node, found.element) == ("init", "n0", 150)


def tensor_bytes(dtype: str) -> int:
    return 300 * DTYPES[dtype].itemsize
