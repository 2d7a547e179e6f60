"""The exact search made anytime: what it has shown impossible it does not try again."""

from __future__ import annotations

from array import array

import pytest

from kgrun.runtime.memory.packing.ladder import climb
from kgrun.runtime.memory.packing.orders import View


@pytest.mark.parametrize("proofs", [True, False])
def test_a_cap_shown_impossible_is_not_tried_again_under_other_orderings(proofs: bool) -> None:
    """Three buffers that live at once take 30 bytes; a bound and a goal of 10 are never met."""
    view = View(array("q", [0, 0, 0]), array("q", [2, 2, 2]), array("q", [10, 10, 10]), 1)
    free = array("q", [-1, -1, -1])
    out = climb(view, free, 0, bound=10, height=60, goal=10, budget=1_000_000, seed=0, deadline=1e18, proofs=proofs)
    assert out.height == 30
    assert out.bound == (30 if proofs else 10)
    assert out.nodes < 1_000
    assert out.offsets is not None
    assert sorted(out.offsets) == [0, 10, 20]
