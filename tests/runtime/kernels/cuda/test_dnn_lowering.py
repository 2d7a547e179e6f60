"""Convolutions go to cuDNN where it is installed and takes them, with kgrun's own kernel behind."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.runtime.kernels.base import KernelCall, LibraryRoutine, Operand, cuda_kernel
from kgrun.runtime.kernels.cuda import dnn


def call(dtype: str = "float16", *, bias: bool = True, group: int = 1, spatial: tuple[int, ...] = (9, 9)) -> OpCall:
    kernel = tuple(3 for _ in spatial)
    inputs = [TensorType(dtype, (2, 16, *spatial)), TensorType(dtype, (32, 16 // group, *kernel))]
    inputs += [TensorType(dtype, (32,))] if bias else []
    return infer("Conv", "c", tuple(inputs), {"group": group, "pads": [1] * (2 * len(spatial))}, 1)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(dnn, "dnn_available", lambda: True)


def test_halves_have_their_bias_fused_and_a_kernel_to_stand_in() -> None:
    lowered = cuda_kernel("Conv")(call())
    (routine,) = lowered.work
    assert isinstance(routine, LibraryRoutine)
    assert (routine.library, routine.routine) == ("cudnn", "conv")
    assert routine.config["y"] == (2, 32, 9, 9)
    assert routine.args[2] == Operand("input", 2)
    assert routine.args[4] == Operand("workspace", 0)
    assert lowered.workspace == (routine.config["workspace"],)
    assert routine.otherwise is not None
    assert Operand("input", 2) in routine.otherwise.args


def test_float32_gets_its_bias_from_a_launch_of_its_own() -> None:
    routine, added = cuda_kernel("Conv")(call("float32")).work
    assert isinstance(routine, LibraryRoutine)
    assert isinstance(added, KernelCall)
    assert routine.args[2] is None
    assert routine.otherwise is not None
    assert Operand("input", 2) not in routine.otherwise.args  # or the bias would be added twice
    assert {Operand("input", 2), Operand("output", 0)} <= set(added.args)


@pytest.mark.parametrize("other", [call("float64"), call(spatial=(9,)), call(group=16)])
def test_what_it_does_not_take_runs_on_kgruns_own_kernels(other: OpCall) -> None:
    lowered = cuda_kernel("Conv")(other)
    assert all(isinstance(work, KernelCall) for work in lowered.work)
    assert lowered.workspace == ()


def test_the_workspace_is_bounded_on_both_sides() -> None:
    assert dnn.workspace_bound(TensorType("float32", (4,))) == 1 << 20
    assert dnn.workspace_bound(TensorType("float32", (1 << 20,))) == 8 << 20
    assert dnn.workspace_bound(TensorType("float32", (1 << 30,))) == 64 << 20
