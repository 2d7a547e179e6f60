"""Which steps may be repeated to be timed."""

from __future__ import annotations

from kgrun.runtime.repeats import repeats
from tests.support import node, program, tensor


def test_what_is_cleared_for_a_step_comes_before_each_repeat() -> None:
    made = program([node("count", ["x"], ["y"], clear=["y"])], {"x": tensor("input")}, ["y"])
    names = [step.name for step in made.steps]
    assert names == ["count.clear", "count"]
    assert repeats(made) == ({1: (0,)}, frozenset())


def test_integers_counted_up_in_place_are_not_repeated_and_floats_are() -> None:
    for dtype, once in (("int32", frozenset({0})), ("float32", frozenset())):
        types = {"x": tensor("parameter", (64,), dtype, init={"fill": 0}), "y": tensor(None, (64,), dtype)}
        made = program([node("up", ["x"], ["y"], inplace={"y": "x"})], types, ["y"])
        assert set(made.steps[0].reads) & set(made.steps[0].writes)
        assert repeats(made) == ({}, once)


def test_steps_that_only_write_afresh_are_repeated() -> None:
    made = program([node("a", ["x"], ["y"])], {"x": tensor("input")}, ["y"])
    assert repeats(made) == ({}, frozenset())
