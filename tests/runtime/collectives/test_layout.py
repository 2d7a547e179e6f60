"""When several operands are one call, and what a collective's time says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kgrun.graphs.bind import bind
from kgrun.runtime.collectives.layout import fused, whole
from kgrun.runtime.collectives.summary import bus_factor, collective_rows, merged
from kgrun.runtime.lower import lower
from tests.support import graph, node, tensor

SIDE_BY_SIDE = [(0, 512), (512, 100), (1024, 4)]
MOVED = [(4096 + place, nbytes) for place, nbytes in SIDE_BY_SIDE]


def test_S57_B24_operands_side_by_side_are_one_call_padding_included() -> None:
    assert fused("all_reduce", SIDE_BY_SIDE, MOVED, 4)
    assert whole(MOVED) == (4096, 1028)


@pytest.mark.parametrize(
    ("routine", "sources", "targets"),
    [
        ("all_gather", SIDE_BY_SIDE, MOVED),  # each rank's parts would not lie where they belong
        ("all_reduce", SIDE_BY_SIDE[:1], MOVED[:1]),  # nothing to fuse
        ("all_reduce", SIDE_BY_SIDE, [MOVED[0], MOVED[2], MOVED[1]]),  # in another order
        ("all_reduce", [(0, 512), (256, 100)], [(4096, 512), (4352, 100)]),  # one in the other
        ("all_reduce", [(0, 4), (1 << 20, 4)], [(1 << 24, 4), ((1 << 24) + (1 << 20), 4)]),  # far apart
        ("all_reduce", [(0, 512), (514, 100)], [(4096, 512), (4610, 100)]),  # no whole elements between
    ],
)
def test_operands_elsewhere_are_calls_of_their_own(routine: str, sources: list, targets: list) -> None:  # type: ignore
    assert not fused(routine, sources, targets, 4)


@pytest.mark.parametrize(
    ("routine", "factor"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75), ("broadcast", 1.0),
     ("reduce", 1.0), ("send", 1.0)],
)  # fmt: skip
def test_bus_bandwidth_counts_what_crosses_the_slowest_link(routine: str, factor: float) -> None:
    assert bus_factor(routine, 4) == factor


def said(total: int, own: int, medians: list[int]) -> dict[str, object]:
    names = [f"k{i}" for i in range(len(medians))]
    return {
        "host": "h", "device": "d", "total": total, "own": own, "peak": 1, "names": names, "medians": medians,
        "spans": [[0, 0, own]],
    }  # fmt: skip


def test_ranks_are_merged_and_the_straggler_is_named() -> None:
    found = merged([said(100, 20, [20, 80]), said(100, 90, [90, 10]), said(101, 21, [21, 80])])
    assert found.total is not None
    assert (found.total.min, found.total.median, found.total.max, found.total.slowest) == (100, 100, 101, 2)
    assert [(row.name, row.max, row.slowest) for row in found.kernels] == [("k0", 90, 1), ("k1", 80, 0)]
    assert found.straggler == 1
    assert found.spans[1] == ((0, 0, 90),)
    assert merged([said(1000, 20, [20]), said(1000, 30, [30])]).straggler is None  # it matters to nobody


def reported(total: int | None, times: list[int], floor: int = 0) -> Any:
    """A report of a CUDA graph: a collective of two ranks among kernels; `times` are those of kernel, call, kernel."""
    made = lower(
        bind(
            graph(
                [
                    node("a", ["x"], ["t"], op="Neg"),
                    node("sum", ["t"], ["u"], op="AllReduce"),
                    node("b", ["t"], ["y"], op="Abs"),
                ],
                {"x": tensor("input", [64], "float32")},
                ["u", "y"],
            ),
            dims={"rank": 0, "world_size": 2},
        ),
        "cuda",
    )
    stats = [SimpleNamespace(times=SimpleNamespace(median=each), floor_ns=floor) for each in times]
    whole = None if total is None else SimpleNamespace(median=total)
    return SimpleNamespace(program=made, steps=stats, total=whole, timeline=(), not_replayed=None)


@pytest.mark.parametrize(
    ("total", "exposed"), [(300, 0), (340, 40), (400, 100), (5000, 100), (None, None)]
)  # 100 + 200 of kernels, and 100 beside them
def test_what_a_cuda_graph_takes_beyond_its_kernels_is_exposed(total: int | None, exposed: int | None) -> None:
    (row,) = collective_rows(reported(total, [100, 100, 200]))
    assert row.exposed_ns == exposed
    assert row.hidden_ns == (None if exposed is None else 100 - exposed)
    (floored,) = collective_rows(reported(total, [109, 109, 209], 9))
    assert (floored.exposed_ns, floored.time_ns) == (exposed, 109)
