"""Frozen records are ordinary dataclasses to everybody who looks."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from typing import Any

import pytest

from kgrun.graphs.records import dataclass

BODY: dict[str, Any] = {
    "__annotations__": {"name": str, "size": int, "more": list, "took": int, "turn": int},
    "size": 3,
    "more": dataclasses.field(default_factory=list),
    "took": dataclasses.field(default=0, compare=False, repr=False),
    "turn": dataclasses.field(default=7, init=False),
}


def made(decorator: Any) -> Any:
    return decorator(frozen=True, slots=True)(type("Sample", (), dict(BODY)))


OURS, THEIRS = made(dataclass), made(dataclasses.dataclass)


@dataclass(frozen=True, slots=True)
class Point:
    """A record that can be pickled."""

    x: int
    y: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Deep(Point):
    """A record made of another."""

    z: float = 0.5

    def __post_init__(self) -> None:
        if self.z < 0:
            raise ValueError("below")


@pytest.mark.parametrize("words", [("a",), ("a", 4), ("a", 4, [1]), ("a", 4, [1], 9)])
def test_it_looks_as_the_standard_one(words: tuple[Any, ...]) -> None:
    ours, theirs = OURS(*words), THEIRS(*words)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    assert OURS.__match_args__ == THEIRS.__match_args__
    assert OURS.__slots__ == THEIRS.__slots__


def test_equality_leaves_out_what_is_not_compared_and_other_classes() -> None:
    assert OURS("a", took=1) == OURS("a", took=2)
    assert OURS("a") != OURS("b")
    assert OURS("a") != THEIRS("a")
    assert Point(1) != Deep(1)
    assert hash(Point(1, (2,))) == hash((1, (2,)))
    assert len({Point(1), Point(1), Point(2)}) == 2


def test_a_default_list_is_each_records_own() -> None:
    assert OURS("a").more is not OURS("a").more


def test_it_is_frozen() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.other = 2  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")


def test_arguments_are_checked_by_name_and_number() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'w'"):
        Point(1, w=2)  # type: ignore[call-arg]


def test_inheritance_replace_copy_and_pickle() -> None:
    deep = Deep(1, (2,), 1.5)
    assert dataclasses.replace(deep, x=5) == Deep(5, (2,), 1.5)
    assert copy.deepcopy(deep) == deep == copy.copy(deep)
    assert pickle.loads(pickle.dumps(deep)) == deep
    with pytest.raises(ValueError, match="below"):
        Deep(1, z=-1.0)


def test_a_plain_subclass_may_have_attributes_of_its_own() -> None:
    class Loose(Point):
        pass

    loose = Loose(1)
    loose.other = 2  # type: ignore[attr-defined]
    assert loose.other == 2  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        loose.x = 2  # type: ignore[misc]


def test_other_kinds_are_the_standard_librarys() -> None:
    @dataclass(slots=True)
    class Open:
        a: int = 1

    found = Open()
    found.a = 2
    assert found == Open(2)


def test_keyword_only_fields_are_refused() -> None:
    body = {"__annotations__": {"a": int}, "a": dataclasses.field(kw_only=True)}
    with pytest.raises(TypeError, match="no keyword-only fields"):
        dataclass(frozen=True, slots=True)(type("Sample", (), body))


def test_the_commands_records_are_made_here() -> None:
    """What is imported on the way of every command must not go back to the slow decorator."""
    script = (
        "import dataclasses, kgrun.runtime.report as report\n"
        "slow = [n for n, c in vars(report).items() if dataclasses.is_dataclass(c) and c.__dataclass_params__.frozen]\n"
        "print(slow)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
