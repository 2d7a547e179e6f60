"""`explain_tensor`: class, place, life, who shares the bytes and why, or why nobody can."""

from __future__ import annotations

import pytest

from kgrun.graphs.errors import UsageError
from kgrun.runtime.memory.explain import explain_tensor
from kgrun.runtime.program import Program
from tests.plan_by_hand import plan_by_hand
from tests.support import node, program, tensor


def chain() -> Program:
    """x → a → b → c → y, each of 256 bytes: a and c can share, b cannot."""
    return program(
        [
            node("first", ["x"], ["a"], workspace=[100]),
            node("second", ["a"], ["b"]),
            node("third", ["b"], ["c"]),
            node("fourth", ["c"], ["y"]),
        ],
        {"x": tensor("input")},
        outputs=["y"],
    )


def test_place_and_life_of_an_intermediate() -> None:
    made = chain()
    found = explain_tensor(made, plan_by_hand(made), "b")
    assert (found.memory_class, found.space, found.nbytes, found.aligned) == ("intermediate", "dynamic", 256, 512)
    assert (found.dtype, found.shape, found.buffer) == ("uint8", (256,), "b")
    assert found.first is not None
    assert found.last is not None
    assert (found.first.name, found.last.name) == ("second", "third")
    assert [s.name for s in found.written_by] == ["second"]
    assert [s.name for s in found.read_by] == ["third"]


def test_sharers_before_and_after_with_their_bytes() -> None:
    made = chain()
    plan = plan_by_hand(made, {"first.workspace[0]": 512, "a": 0, "b": 512, "c": 0})
    a, c = explain_tensor(made, plan, "a"), explain_tensor(made, plan, "c")
    assert [(s.name, s.shared_bytes, s.first.name) for s in a.after] == [("c", 512, "third")]
    assert (a.before, a.alone_because) == ((), None)
    assert [(s.name, s.shared_bytes) for s in c.before] == [("a", 512)]


def test_nearest_sharer_comes_first() -> None:
    made = program([node(f"n{i}", [f"t{i}"], [f"t{i + 1}"]) for i in range(6)], {"t0": tensor("input")}, outputs=["t6"])
    found = explain_tensor(made, plan_by_hand(made), "t3")
    assert [s.name for s in (*found.before, *found.after)] == ["t1", "t5"]


def test_conflicts_with_all_others() -> None:
    made = program(
        [node("one", ["x"], ["a", "b"]), node("two", ["a", "b"], ["y"])], {"x": tensor("input")}, outputs=["y"]
    )
    found = explain_tensor(made, plan_by_hand(made), "a")
    assert found.alone_because is not None
    assert found.alone_because.startswith("conflicts: each of the 1 other")
    assert found.at_peak
    assert found.peak is not None


def test_a_tensor_alone_although_it_could_share() -> None:
    made = chain()
    plan = plan_by_hand(made, {"first.workspace[0]": 0, "a": 512, "b": 1024, "c": 1536})
    found = explain_tensor(made, plan, "c")
    assert found.alone_because is not None
    assert "live at other times, the largest" in found.alone_because
    assert "the planner found no use for it" in found.alone_because


@pytest.mark.parametrize(
    ("name", "reason"),
    [("x", "static: an input"), ("y", "static: an output"), ("w", "static: a parameter"), ("k", "static: a constant")],
)
def test_static_tensors_say_why_they_keep_their_bytes(name: str, reason: str) -> None:
    made = program(
        [node("one", ["x", "w", "k"], ["y"])],
        {
            "x": tensor("input"),
            "w": tensor("parameter", init={"fill": 0}),
            "k": tensor("constant", [4], value=[1, 2, 3, 4]),
        },
        outputs=["y"],
    )
    found = explain_tensor(made, plan_by_hand(made), name)
    assert found.space == "static"
    assert found.alone_because is not None
    assert found.alone_because.startswith(reason)
    assert not found.at_peak


def test_S46_no_reuse_is_given_as_the_reason() -> None:
    made = program(
        [node("one", ["x"], ["a"], no_reuse=True), node("two", ["a"], ["b"]), node("three", ["b"], ["y"])],
        {"x": tensor("input")},
        outputs=["y"],
    )
    found = explain_tensor(made, plan_by_hand(made), "a")
    assert found.alone_because is not None
    assert found.alone_because.startswith("no_reuse")


def test_S55_lifelong_is_given_as_the_reason() -> None:
    made = program(
        [node("one", ["x"], ["a"]), node("two", ["a"], ["b"]), node("three", ["b"], ["y"])],
        {"x": tensor("input"), "a": tensor(lifelong=True)},
        outputs=["y"],
    )
    found = explain_tensor(made, plan_by_hand(made), "a")
    assert found.alone_because is not None
    assert found.alone_because.startswith("lifelong")
    assert found.last is not None
    assert found.last.name == "three"


def test_reuse_switched_off_is_given_as_the_reason() -> None:
    made = chain()
    plan = plan_by_hand(made, {"first.workspace[0]": 0, "a": 512, "b": 1024, "c": 1536}, planner="none")
    assert explain_tensor(made, plan, "a").alone_because == "reuse is off: every buffer has its own bytes"


def test_S58_streams_without_order_are_given_as_the_reason() -> None:
    made = program(
        [
            node("left1", ["x"], ["a"], stream="one"),
            node("left2", ["a"], ["y"], stream="one"),
            node("right1", ["x"], ["b"], stream="two"),
            node("right2", ["b"], ["z"], stream="two"),
        ],
        {"x": tensor("input")},
        outputs=["y", "z"],
    )
    found = explain_tensor(made, plan_by_hand(made, {"a": 0, "b": 512}), "b")
    assert found.alone_because is not None
    assert found.alone_because.startswith("conflicts: 1 of the 1 other dynamic buffers")
    assert "on other streams" in found.alone_because


def test_S53_streams_that_wait_are_in_order() -> None:
    made = program(
        [
            node("left1", ["x"], ["a"], stream="one"),
            node("left2", ["a"], ["m"], stream="one"),
            node("right1", ["m"], ["b"], stream="two"),
            node("right2", ["b"], ["y"], stream="two"),
        ],
        {"x": tensor("input")},
        outputs=["y"],
    )
    found = explain_tensor(made, plan_by_hand(made, {"a": 0, "m": 512, "b": 1024}), "b")
    assert found.alone_because is not None
    assert "live at other times, the largest a" in found.alone_because


def test_alias_class_and_granted_request() -> None:
    made = program(
        [
            node("make", ["x"], ["a"]),
            node("act", ["a"], ["b"], op="Relu"),
            node("view", ["b", "shape"], ["c"], op="Reshape"),
            node("end", ["c"], ["y"]),
        ],
        {
            "x": tensor("input"),
            "a": tensor(None, [64], "float32"),
            "shape": tensor("constant", [2], "int64", value=[8, 8]),
            "y": tensor(None),
        },
        outputs=["y"],
    )
    found = explain_tensor(made, plan_by_hand(made), "c")
    assert [(m.name, m.reason) for m in found.alias_class] == [
        ("a", None), ("b", "in place of a"), ("c", "view of b"),
    ]  # fmt: skip
    request = explain_tensor(made, plan_by_hand(made), "b").inplace
    assert [(d.output, d.input, d.granted) for d in request] == [("b", "a", True)]


def test_refused_request_says_why() -> None:
    made = program(
        [
            node("make", ["x"], ["a"]),
            node("act", ["a"], ["b"], op="Relu"),
            node("end", ["a", "b"], ["y"]),
        ],
        {"x": tensor("input"), "a": tensor(None, [64], "float32")},
        outputs=["y"],
    )
    (decision,) = explain_tensor(made, plan_by_hand(made), "b").inplace
    assert not decision.granted
    assert decision.reason == "a is read later by end"


def test_a_workspace_is_explained_too() -> None:
    made = chain()
    found = explain_tensor(made, plan_by_hand(made), "first.workspace[0]")
    assert (found.role, found.dtype, found.nbytes) == ("workspace", None, 100)
    assert [s.name for s in found.written_by] == ["first"]


def test_a_tensor_without_memory_says_why() -> None:
    made = program(
        [node("view", ["x", "shape"], ["y"], op="Reshape"), node("end", ["y"], ["z"])],
        {"x": tensor("input"), "shape": tensor("constant", [2], "int64", value=[16, 16])},
        outputs=["z"],
    )
    found = explain_tensor(made, plan_by_hand(made), "shape")
    assert found.offset is None
    assert found.no_memory is not None
    assert "known before the run" in found.no_memory


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    made = chain()
    with pytest.raises(UsageError) as caught:
        explain_tensor(made, plan_by_hand(made), "first.workspace[1]")
    assert caught.value.code == "KG259"
    assert caught.value.help is not None
    assert "first.workspace[0]" in caught.value.help
