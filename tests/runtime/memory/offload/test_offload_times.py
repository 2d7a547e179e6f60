"""Times that schedules are made by: profiles, reports, and what a first run measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgrun.cli.offload import read_profile
from kgrun.graphs.errors import UsageError
from kgrun.runtime import Session
from kgrun.runtime.memory.offload.records import Rates
from kgrun.runtime.memory.offload.times import PROFILES, measured_profile, report_profile, step_times
from kgrun.runtime.planning import Planning
from kgrun.runtime.refine import refined, same_steps
from tests.runtime.memory.offload.test_offload_state import floor_of, training
from tests.support import node, program, tensor


def test_steps_take_what_their_bytes_and_operations_take() -> None:
    tensors = {"x": tensor("input", (1 << 20,), "float32"), "y": tensor(None, (1 << 20,), "float32")}
    made = program([node("a", ["x"], ["y"], flops=10, bytes=8 << 20)], tensors, ["y"])
    profile = PROFILES["h200"]
    assert step_times(made, profile) == [pytest.approx(870 + (8 << 20) / 4.24e12 * 1e9)]
    known = measured_profile(made, {0: 1234}, profile)
    assert step_times(made, known) == [1234.0]


def row(name: str, op: str, nbytes: int | None, median: int | None) -> dict[str, Any]:
    return {"name": name, "op": op, "nbytes": nbytes, "time_ns": None if median is None else {"median": median}}


def test_a_report_gives_medians_and_rates(tmp_path: Path) -> None:
    kernels = [row("a", "Add", 8, 700), row("b", "Mul", 8, None), row("w.in", "H2D", 1 << 30, 10_000_000)]
    document = {"kernels": kernels, "device": {"kind": "cuda"}, "roofline": {"bytes_per_s": 5, "flops_per_s": 7}}
    profile = report_profile(document, "r.json")
    assert profile.step_ns == {"a": 700.0}
    assert profile.rates.in_bytes_per_s == pytest.approx((1 << 30) * 100)
    assert profile.rates.out_bytes_per_s == PROFILES["h200"].rates.out_bytes_per_s
    assert (profile.bytes_per_s, profile.flops_per_s) == (5.0, 7.0)
    file = tmp_path / "r.json"
    file.write_text(json.dumps(document))
    assert read_profile(str(file)) == report_profile(document, str(file))


@pytest.mark.parametrize("text", ["h100", "missing.json"])
def test_an_unknown_profile_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_profile(text)
    assert caught.value.code == "KG260"


@pytest.mark.parametrize(
    "content",
    [
        "[]", "{}", "no json", '{"kernels": 3}', "[" * 100_000,
        '{"kernels": [{"name": "a", "time_ns": {"median": -5}}]}',
        '{"kernels": [{"name": "a", "op": "H2D", "nbytes": "many", "time_ns": {"median": 5}}]}',
        '{"kernels": [], "roofline": {"bytes_per_s": NaN}}',
        '{"kernels": [], "roofline": {"flops_per_s": "fast"}}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "r.json"
    file.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_profile(str(file))
    assert caught.value.code == "KG260"


def test_S107_the_second_schedule_is_made_by_what_the_first_one_measured() -> None:
    made = training()
    limit = floor_of(made) + 2 * 4096
    with Session(made, device="cpu", memory_limit=limit) as session:
        plain = Session(made, device="cpu", offload="off")
        loaded = session.loaded
        with plain:
            found = refined(loaded, plain.program, Planning(memory_limit=limit), {}, 0)
        assert found is not None
        again, plan = found
        assert again.offload is not None
        assert again.offload.profile == "measured"
        assert plan.peak_bytes <= limit
        assert again.offload.compute_ns != loaded.program.offload.compute_ns  # type: ignore[union-attr]
        assert same_steps(again, again)
        given = Planning(memory_limit=limit, profile=PROFILES["h200"])
        assert refined(loaded, plain.program, given, {}, 0) is None
        loaded.load({}, 0, inputs=False)
        before = session.run(iterations=1).outputs
    with Session(made, device="cpu") as session:
        assert all(before[name].tobytes() == array.tobytes() for name, array in session.run().outputs.items())


def test_rates_count_latency() -> None:
    rates = Rates(1e9, 2e9, 100.0)
    assert rates.in_ns(1000) == pytest.approx(1100)
    assert rates.out_ns(1000) == pytest.approx(600)
