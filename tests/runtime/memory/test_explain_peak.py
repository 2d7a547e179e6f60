"""`explain_peak`: what the peak is made of, the live curve (S61), holes, and what would lower it."""

from __future__ import annotations

import random
from dataclasses import replace

from kgrun.runtime.memory.explain_index import PlanIndex
from kgrun.runtime.memory.explain_peak import explain_peak
from kgrun.runtime.memory.plan import plan_memory
from kgrun.runtime.program import Program
from tests.plan_by_hand import plan_by_hand
from tests.support import node, program, tensor


def waiting() -> Program:
    """`kept` is made first and read last; in between `big` is the peak."""
    return program(
        [
            node("make", ["x"], ["kept"]),
            node("grow", ["x"], ["big"]),
            node("shrink", ["big"], ["small"]),
            node("end", ["small", "kept"], ["y"]),
        ],
        {"x": tensor("input"), "kept": tensor(None, [2048]), "big": tensor(None, [8192])},
        outputs=["y"],
    )


def test_S61_curve_and_bound() -> None:
    made = waiting()
    found = explain_peak(made, plan_by_hand(made))
    assert found.curve == (2048, 10240, 10752, 2560)
    assert (found.live_bytes, found.lower_bound, found.height) == (10752, 10752, 10752)
    assert found.step is not None
    assert (found.step.index, found.step.name, found.plateau) == (2, "shrink", 1)


def test_contributors_are_sorted_and_classed() -> None:
    made = waiting()
    found = explain_peak(made, plan_by_hand(made))
    assert [(c.name, c.aligned, c.touched) for c in found.contributors] == [
        ("big", 8192, True), ("kept", 2048, False), ("small", 512, True),
    ]  # fmt: skip
    assert found.class_bytes == (("intermediate", 10752),)


def test_holes_at_the_peak() -> None:
    made = waiting()
    plan = plan_by_hand(made, {"kept": 1024, "big": 4096, "small": 12800})
    found = explain_peak(made, plan)
    assert [(h.offset, h.nbytes) for h in found.holes] == [(0, 1024), (3072, 1024), (12288, 512)]
    assert found.hole_bytes == plan.dynamic_bytes - found.live_bytes


def test_an_idle_buffer_is_named_with_what_it_would_save() -> None:
    made = waiting()
    found = explain_peak(made, plan_by_hand(made))
    kept = next(c for c in found.changes if c.name == "kept")
    assert (kept.kind, kept.saved_bytes, kept.bound_after) == ("idle", 2048, 8704)
    assert kept.text.startswith("kept waits from make to end")
    assert kept.text.endswith("or run make after shrink")
    assert [c.name for c in found.changes] == ["big", "kept", "small"]


def test_a_refused_inplace_request_is_a_change() -> None:
    made = program(
        [
            node("make", ["x"], ["a"]),
            node("act", ["a"], ["b"], op="Relu"),
            node("end", ["a", "b"], ["y"]),
        ],
        {"x": tensor("input"), "a": tensor(None, [1024], "float32")},
        outputs=["y"],
    )
    found = explain_peak(made, plan_by_hand(made))
    grant = next(c for c in found.changes if c.kind == "inplace")
    assert (grant.name, grant.saved_bytes, grant.bound_after) == ("b", 4096, 4096)
    assert "refused because a is read later by end" in grant.text


def test_no_change_helps_where_two_peaks_have_nothing_in_common() -> None:
    made = program([node(f"n{i}", [f"t{i}"], [f"t{i + 1}"]) for i in range(8)], {"t0": tensor("input")}, outputs=["t8"])
    found = explain_peak(made, plan_by_hand(made))
    assert found.changes == ()
    assert found.note is not None
    assert found.note.startswith("no single change lowers the bound: 6 steps")


def test_S46_unshared_bytes_count_in_every_step() -> None:
    made = program(
        [node("one", ["x"], ["a"], no_reuse=True), node("two", ["a"], ["b"]), node("three", ["b"], ["y"])],
        {"x": tensor("input")},
        outputs=["y"],
    )
    assert explain_peak(made, plan_by_hand(made)).curve == (512, 1024, 1024)


def test_a_graph_without_dynamic_memory() -> None:
    made = program([node("one", ["x"], ["y"])], {"x": tensor("input")}, outputs=["y"])
    found = explain_peak(made, plan_by_hand(made))
    assert (found.step, found.contributors, found.changes) == (None, (), ())
    assert found.note == "the graph has no dynamic memory"


def _random_program(seed: int) -> Program:
    rng = random.Random(seed)
    tensors = {"x": tensor("input")}
    nodes, made = [], ["x"]
    for i in range(rng.randint(2, 25)):
        tensors[f"t{i}"] = tensor(None, [rng.randint(1, 8) * 512])
        nodes.append(node(f"n{i}", rng.sample(made, min(len(made), rng.randint(1, 3))), [f"t{i}"]))
        made.append(f"t{i}")
    nodes.append(node("end", [made[-1]], ["y"]))
    return program(nodes, tensors, outputs=["y"])


def test_suggested_bounds_are_what_a_recount_gives() -> None:
    checked = 0
    for seed in range(60):
        made = _random_program(seed)
        plan = plan_by_hand(made)
        for change in explain_peak(made, plan).changes:
            if change.kind == "remove":
                left = tuple(p for p in plan.placements if p.name != change.name)
                live = PlanIndex(made, replace(plan, placements=left)).live
            else:
                live = _without_idle_time(made, change.name)
            assert max(live) == change.bound_after
            assert change.saved_bytes == plan.lower_bound_bytes - change.bound_after > 0
            checked += 1
    assert checked > 50


def _without_idle_time(made: Program, name: str) -> list[int]:
    """Live bytes recounted with the buffer gone between the two uses around the peak."""
    plan = plan_by_hand(made)
    index = PlanIndex(made, plan)
    assert index.peak is not None
    place = next(p for p in plan.placements if p.name == name)
    uses = index.touches[place.buffer]
    before = max(t for t in uses if t < index.peak)
    after = min(t for t in uses if t > index.peak)
    return [live - (place.aligned if before < t < after else 0) for t, live in enumerate(index.live)]


def test_sixty_thousand_buffers() -> None:
    """A pair of 1 KiB and 512 B tensors is live in each step of a long chain, the input and output apart."""
    made = waiting()
    intermediate = next(b for b in made.buffers if b.name == "kept")
    buffers = tuple(replace(intermediate, index=i, name=f"b{i}", nbytes=512 << i % 2) for i in range(60_000))
    steps = tuple(
        replace(made.steps[0], index=i, name=f"s{i}", reads=(i - 1,) if i else (), writes=(i,)) for i in range(60_000)
    )
    large = replace(made, buffers=buffers, steps=steps)
    plan = plan_memory(large)
    found = explain_peak(large, plan)
    assert (found.live_bytes, found.plateau, len(found.curve)) == (1536, 59_999, 60_000)
    assert plan.dynamic_bytes == 1536
    assert found.changes == ()
