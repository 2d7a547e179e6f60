"""The benchmark of fused kernels, on the CPU, where nothing is fused: both ways are measured and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgrun.runtime.devices.cpu import CpuDevice

ROOT = Path(__file__).parents[2]


def test_both_ways_are_measured_and_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import fused
    from harness import Section

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8]) for name in "xy")
    nodes = [helper.make_node("Exp", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "m", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "m.onnx")
    section = Section("s")
    fused.compare(CpuDevice(), [f"{tmp_path}/m.onnx:N=3"], section)
    (row,) = section.rows
    assert len(row) == len(section.columns)
    assert (row[:3], row[-1]) == (("m", 2, 2), 0.0)
    assert [check.ok for check in section.checks] == [True]
    monkeypatch.setattr(fused, "_difference", lambda *_: 0.5)
    fused.compare(CpuDevice(), [f"{tmp_path}/m.onnx:N=3"], section)
    assert [check.ok for check in section.checks] == [True, False]
