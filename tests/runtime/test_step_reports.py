"""Reports: both kinds of session fill in the same members from what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.runtime.eager.session import NOT_REPLAYED, EagerSession
from kgrun.runtime.session import Session
from tests.support import graph, tensor

MADE = graph(
    [
        {"name": "n", "op": "Add", "inputs": ["x", "w"], "outputs": ["t"]},
        {"name": "m", "op": "Neg", "inputs": ["t"], "outputs": ["y"]},
    ],
    {"x": tensor("input", [300], "float32"), "w": tensor("parameter", [300], "float32", init={"fill": 2})},
    ["y"],
)


@pytest.mark.parametrize("session", [Session, EagerSession])
def test_a_report_says_what_was_measured(session: Any) -> None:
    x = np.arange(300, dtype=np.float32)
    with session(MADE, device="cpu", values={"x": x}) as opened:
        report = opened.run(iterations=4, warmup=2)
    np.testing.assert_array_equal(report.outputs["y"], -(x + 2))
    assert (report.iterations, report.warmup, len(report.total_samples)) == (4, 2, 4)
    assert report.total.min == min(report.total_samples)
    assert [(step.name, step.op) for step in report.steps] == [("n", "Add"), ("m", "Neg")]
    assert all(step.times.count >= 1 and step.floor_ns == report.floors_ns[step.method] for step in report.steps)
    assert [row[0] for row in report.timeline] == [0, 1]
    assert (report.upload.nbytes, report.download.nbytes) == (2 * 1200, 1200)
    assert report.download.ns == report.phases_ns["download"] > 0
    assert report.measured_peak_bytes >= 2 * 1200 + 1200
    assert (report.cache, report.issue_ns, report.gpu_states, report.queues) == ("hot", None, (), ())
    assert report.balance is not None
    assert report.device.kind == "cpu"
    assert (report.not_replayed == NOT_REPLAYED) == (session is EagerSession)
