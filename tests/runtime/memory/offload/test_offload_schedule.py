"""Simulated schedules are possible ones, and none beats the bounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.runtime.memory.offload.bounds import bounds_of, fractional_ns, unavoidable_bytes
from kgrun.runtime.memory.offload.choose import ORDERS, best_schedule, choose, seeds_choice
from kgrun.runtime.memory.offload.infeasible import floor
from kgrun.runtime.memory.offload.records import Problem, Rates, Schedule, Tensor
from kgrun.runtime.memory.offload.simulate import full_load, simulate
from kgrun.runtime.memory.offload.stays import gaps_of, parts_of, stays

SLACK = 1e-3  # nanoseconds


def problem(ns: Sequence[float], tensors: Sequence[Tensor], capacity: int, rates: Rates, fixed: int = 0) -> Problem:
    elapsed = [0.0, *accumulate(ns)]
    gaps = [g for i, t in enumerate(tensors) for g in gaps_of(i, t, len(ns), elapsed) if g.steps]
    return Problem(ns, tensors, gaps, fixed, capacity, rates)


def a_problem(seed: int, steps: int = 14) -> Problem:
    """A random problem with a capacity between its floor and what all take."""
    r = random.Random(seed)
    ns = [r.choice((0.0, 10.0, 100.0, 300.0)) for _ in range(steps)]
    tensors = []
    for i in range(r.randint(2, 14)):
        persistent = r.random() < 0.4
        touches = tuple(sorted(r.sample(range(steps), r.randint(1, 4))))
        writes = {t for t in touches if r.random() < 0.3} | (set() if persistent else {touches[0]})
        size = r.randint(1, 20)
        wanted = not persistent and r.random() < 0.2
        tensors.append(Tensor(i, f"t{i}", size, size, touches, frozenset(writes), persistent, wanted))
    loose = problem(ns, tensors, 1, Rates(1e9, 1e9))
    least, most = floor(loose)[0], int(full_load(loose).max())
    rate = r.choice((2e7, 1e8, 1e9))
    rates = Rates(rate, rate * r.choice((0.5, 1.0)), r.choice((0.0, 5.0)))
    return problem(ns, tensors, least + round(r.random() * (most - least)), rates)


def check_schedule(made: Problem, found: Schedule) -> None:
    """Steps in order, one copy at a time each way, data there when they are needed, never more than the capacity."""
    ends = [start + ns for start, ns in zip(found.starts, made.ns, strict=True)]
    assert all(end <= start + SLACK for end, start in zip(ends, found.starts[1:], strict=False))
    for copies in ([m.out_ns for m in found.moves], [m.in_ns for m in found.moves]):
        assert all(a[1] <= b[0] + SLACK for a, b in pairwise(sorted(c for c in copies if c is not None)))
    held = [made.fixed] * len(made.ns)
    for index, tensor in enumerate(made.tensors):
        here = {s for s in range(len(made.ns)) if tensor.persistent or s >= tensor.touches[0]}
        if not tensor.persistent and not tensor.wanted:
            here = {s for s in here if s <= tensor.touches[-1]}
        for move in (m for m in found.moves if m.part.tensor == index):
            part = move.part
            away = set(range(part.start, part.end))
            if move.out_ns is not None:
                assert part.ready is not None
                assert part.ready < 0 or ends[part.ready] <= move.out_ns[0] + SLACK
                away = {s for s in away if found.starts[s] >= move.out_ns[1] - SLACK}
            if move.in_ns is not None:
                assert move.out_ns is None or move.out_ns[1] <= move.in_ns[0] + SLACK
                assert move.in_ns[1] <= found.starts[part.end] + SLACK
                away = {s for s in away if ends[s] <= move.in_ns[0] + SLACK}
            here -= away
        assert here.issuperset(tensor.touches)
        for step in here:
            held[step] += tensor.held
    assert max(held) <= made.capacity
    last = [c[1] for m in found.moves for c in (m.out_ns, m.in_ns) if c is not None]
    assert found.total_ns == pytest.approx(max([ends[-1], *last]))
    assert found.compute_ns == pytest.approx(sum(made.ns))


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_S97_S101_S122_simulated_runs_keep_every_rule(seed: int) -> None:
    made = a_problem(seed)
    best = best_schedule(made, made.capacity, search=seed % 3 == 0)
    assert best is not None, "the floor fits"
    check_schedule(made, best[0])
    rule = seeds_choice(made, made.capacity)
    assert rule is not None
    old = simulate(made, parts_of(made, rule), prefetch=False)
    if old is not None:
        check_schedule(made, old)
        assert all(m.in_ns is None or m.fetched == m.part.end for m in old.moves)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_schedule_beats_the_bounds(seed: int) -> None:
    pytest.importorskip("scipy")
    made = a_problem(seed, steps=10)
    best = best_schedule(made, made.capacity)
    assert best is not None
    bound, note = fractional_ns(made)
    assert bound is not None, note
    least = sum(made.ns)
    assert least <= bound * (1 + 1e-6)
    assert bound <= best[0].total_ns * (1 + 1e-6) + SLACK
    into, out = unavoidable_bytes(made)
    assert into * 1e9 / made.rates.in_bytes_per_s <= best[0].total_ns + SLACK
    assert out * 1e9 / made.rates.out_bytes_per_s <= best[0].total_ns + SLACK


def test_bounds_say_why_the_program_was_not_solved() -> None:
    made = a_problem(3)
    assert bounds_of(made, sum(made.ns)).lp_ns == round(sum(made.ns))
    large = bounds_of(made, None, largest=0)
    assert large.lp_ns is not None or "variables" in str(large.lp_note)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), order=st.sampled_from([order for _, order in ORDERS]))
def test_S97_a_choice_brings_every_step_under_the_capacity_and_no_gap_is_left_for_nothing(seed: int, order) -> None:  # type: ignore[no-untyped-def]
    made = a_problem(seed)
    chosen = choose(made, order, made.capacity)
    assert chosen is not None
    load = full_load(made)
    for index in chosen:
        for low, high in made.gaps[index].spans:
            load[low:high] -= made.tensors[made.gaps[index].tensor].held
    assert load.max() <= made.capacity
    for index in chosen:
        held = made.tensors[made.gaps[index].tensor].held
        assert any(load[low:high].max() + held > made.capacity for low, high in made.gaps[index].spans)


def one(touches: tuple[int, ...], writes: set[int], **kind: bool) -> Tensor:
    return Tensor(0, "t", 8, 8, touches, frozenset(writes), **kind)


def test_S99_off_02_data_are_dirty_from_a_write_until_they_were_copied() -> None:
    made = stays(one((1, 4, 8), {1}), [0, 1])
    assert [(s.touches, s.comes, s.goes, s.dirty) for s in made] == [
        ((1,), False, True, True), ((4,), True, True, False), ((8,), True, False, False),
    ]  # fmt: skip
    weight = stays(one((1, 4), set(), persistent=True), [0, 1])
    assert [(s.comes, s.goes, s.dirty) for s in weight] == [(True, True, False)] * 2


def test_S94_S98_the_gap_of_a_persistent_tensor_leads_round_to_the_next_run() -> None:
    updated = one((1, 4), {4}, persistent=True)
    gaps = list(gaps_of(0, updated, 6, [0.0, *accumulate([1.0] * 6)]))
    assert [(g.touch, g.spans) for g in gaps] == [(0, ((2, 4),)), (1, ((5, 6), (0, 1)))]
    assert gaps[1].idle_ns == 2
    middle = stays(updated, [0])  # stays over the end of the run, so the first stay holds what the last one wrote
    assert [(s.comes, s.goes, s.dirty, s.ready) for s in middle] == [(False, True, True, -1), (True, False, True, 4)]
    both = stays(updated, [0, 1])
    assert [(s.comes, s.goes, s.dirty, s.ready) for s in both] == [(True, True, False, 1), (True, True, True, 4)]


def test_a_single_use_counts_as_the_whole_loop() -> None:
    gaps = list(gaps_of(0, one((2,), set(), persistent=True), 5, [0.0, *accumulate([1.0] * 5)]))
    assert [g.spans for g in gaps] == [((3, 5), (0, 2))]


def test_S98_the_greedy_rule_keeps_the_largest_product_of_gap_and_bytes() -> None:
    """Steps 0..5; a (30 bytes, gap of 4) and b (20 bytes, gap of 4) are idle together; 30 bytes are left for one."""
    tensors = [
        Tensor(0, "a", 30, 30, (0, 5), frozenset([0])),
        Tensor(1, "b", 20, 20, (0, 5), frozenset([0])),
        Tensor(2, "c", 40, 40, (2, 3), frozenset([2])),
    ]
    made = problem([1.0] * 6, tensors, 70, Rates(1e9, 1e9))
    found = seeds_choice(made, 70)
    assert found is not None
    assert [made.tensors[made.gaps[i].tensor].name for i in found] == ["b"]


def test_copies_in_are_pulled_as_early_as_memory_allows() -> None:
    """A weight of the last step comes in at once where there is room, else as soon as the step that filled it ends."""
    weight = Tensor(0, "w", 100, 100, (4,), frozenset(), persistent=True)
    large = Tensor(1, "x", 100, 100, (1, 2), frozenset([1]))
    ns = [100.0] * 5
    rates = Rates(1e9, 1e9)
    for capacity, start in ((200, 0.0), (150, 300.0)):
        made = problem(ns, [weight, large], capacity, rates)
        border = [i for i, g in enumerate(made.gaps) if g.tensor == 0]
        found = simulate(made, parts_of(made, border))
        assert found is not None
        assert found.moves[0].in_ns == (start, start + 100)
        assert found.exposed_ns == 0


def test_a_copy_out_starts_before_the_last_reader_has_run() -> None:
    tensors = [Tensor(0, "a", 100, 100, (0, 1, 5), frozenset([0])), Tensor(1, "b", 100, 100, (3,), frozenset([3]))]
    made = problem([100.0] * 6, tensors, 100, Rates(1e9, 1e9))
    best = best_schedule(made, 100)
    assert best is not None
    (move,) = best[0].moves
    assert move.out_ns == (100.0, 200.0)
    assert best[0].exposed_ns == 0
