"""The memory map's data, SVG and terminal sketch: what is drawn, how much of it, and that names stay text."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from kgrun.cli.render.memory_map import (
    MemoryMap,
    columns_map,
    html_page,
    packing_map,
    plan_map,
    svg_map,
    terminal_sketch,
)
from kgrun.cli.render.memory_map.coverage import axis_ticks, coverage
from kgrun.cli.render.memory_map.data import Item, live_at, live_curve
from kgrun.runtime.memory.packing.problem import Problem
from tests.plan_by_hand import plan_by_hand
from tests.support import node, program, tensor

HOSTILE = "</script><script>alert(1)</script>\"'&<!--\u2028\u202e\x07"
SVG = "{http://www.w3.org/2000/svg}"


def small() -> MemoryMap:
    made = program(
        [
            node("make", ["x", "w"], ["a"], workspace=[700]),
            node("grow", ["a"], ["b"]),
            node("end", ["b"], ["y"]),
        ],
        {"x": tensor("input"), "w": tensor("parameter", init={"fill": 0}), "b": tensor(None, [2048])},
        outputs=["y"],
        name="three steps",
    )
    return plan_map(made, plan_by_hand(made))


def tiles(count: int) -> MemoryMap:
    """`count` buffers of one byte side by side in time, each two units long."""
    times = range(count)
    return columns_map(
        [f"t{i}" for i in times], list(times), [i + 2 for i in times], [1] * count, [i % 2 for i in times], "tiles"
    )


def test_map_of_a_plan() -> None:
    made = small()
    assert (made.title, made.unit, made.steps, made.start, made.end) == (
        "three steps",
        "step",
        ("make", "grow", "end"),
        0,
        3,
    )
    assert (made.height, made.lower_bound, made.peak, made.peak_live) == (2560, 2560, 1, 2560)
    assert {(i.name, i.group, i.static) for i in made.items} == {
        ("x", "input", True), ("w", "parameter", True), ("y", "output", True),
        ("a", "intermediate", False), ("b", "intermediate", False), ("make.workspace[0]", "workspace", False),
    }  # fmt: skip
    assert [live_at(made.live, t) for t in range(4)] == [1536, 2560, 2048, 0]


def test_map_of_a_problem_with_holes_aliases_and_alignment() -> None:
    problem = Problem(
        lower=[0, 4, 0], upper=[2, 9, 2], size=[10, 8, 4], ids=["a", "b", "inner"], alignment=8,
        extra_intervals={0: [(6, 9)]}, aliases={2: (0, 0)},
    )  # fmt: skip
    made = packing_map(problem, [0, 16, 0], "holes.csv")
    a, b, inner = made.items
    assert (a.spans, a.held, b.held, inner.held) == (((0, 2), (6, 9)), 16, 8, 4)
    assert inner.notes == ("inside a",)
    assert (made.height, made.lower_bound, made.peak, made.optimal) == (24, 24, 6, True)
    assert [live_at(made.live, t) for t in (0, 2, 4, 6, 9)] == [16, 0, 8, 24, 0]


def test_live_curve_counts_overlapping_spans_once() -> None:
    item = Item("a", "buffer", False, 0, 5, 5, ((0, 4), (2, 6), (8, 9)))
    assert live_curve([item], -1) == ((-1, 0), (0, 5), (6, 0), (8, 5), (9, 0))


def test_coverage_is_exact_for_parts_of_cells() -> None:
    item = Item("a", "buffer", False, 1, 2, 2, ((1, 3),))
    assert coverage([item], 0, 4, 4, 2, 2) == [[0.25, 0.25], [0.25, 0.25]]
    assert coverage([item], 0, 4, 4, 4, 4)[1] == [0, 1, 1, 0]
    assert coverage([], 0, 4, 0, 2, 2) == [[0, 0], [0, 0]]


def test_coverage_adds_up_to_the_area() -> None:
    items = [Item(f"{i}", "buffer", False, 7 * i, 7, 7, ((i, 3 * i + 2),)) for i in range(20)]
    grid = coverage(items, 0, 60, 140, 13, 9)
    area = sum(item.held * (item.spans[0][1] - item.spans[0][0]) for item in items)
    assert sum(map(sum, grid)) * (60 / 13) * (140 / 9) == pytest.approx(area)


def test_ticks_are_round() -> None:
    assert axis_ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert axis_ticks(0, 5000, 6, binary=True) == [0, 1024, 2048, 3072, 4096]
    assert axis_ticks(-7, 3, 5) == [-6, -4, -2, 0, 2]


def test_sketch_of_the_arena() -> None:
    lines = terminal_sketch(columns_map(["a", "b", "c"], [0, 0, 2], [4, 2, 4], [2, 2, 1], [0, 2, 2], "s"), 40, 4)
    assert lines == [
        "4 B │████████",
        "    │████████████████",
        "    │████████████████",
        "  0 │████████████████",
        "    └────────────────",
        "     0              4",
        "       ▲ peak: time 0, 4 B live",
    ]


def test_sketch_fits_its_width_marks_the_peak_and_has_an_ascii_form() -> None:
    made = small()
    for width in (30, 60, 80, 140):
        lines = terminal_sketch(made, width, 6)
        assert max(map(len, lines)) <= width
        assert sum("▲" in line for line in lines) == 1
    ascii_lines = terminal_sketch(made, 60, 6, ascii_only=True)
    assert all(line.isascii() for line in ascii_lines)
    assert len(ascii_lines) == 6 + 3
    assert ascii_lines[-1].endswith("^ peak: step 1, grow, 2.50 KiB live")


def test_sketch_of_a_plan_alone_and_of_nothing() -> None:
    made = program([node("one", ["x"], ["a"]), node("two", ["a"], ["y"])], {"x": tensor("input")}, outputs=["y"])
    assert any("512 B" in line for line in terminal_sketch(plan_by_hand(made), 60, 4))
    empty = program([node("one", ["x"], ["y"])], {"x": tensor("input")}, outputs=["y"])
    assert terminal_sketch(plan_by_hand(empty), 60, 4) == []


def test_sketch_of_very_long_step_names_does_not_steer_the_terminal() -> None:
    made = program([node("n" * 200, ["x"], ["a"]), node("two", ["a"], ["y"])], {"x": tensor("input")}, outputs=["y"])
    lines = terminal_sketch(plan_map(made, plan_by_hand(made)), 60, 4)
    assert max(map(len, lines)) <= 60


def test_svg_draws_every_buffer_of_a_small_plan_with_a_tooltip() -> None:
    root = ElementTree.fromstring(svg_map(small()))
    titles = [t.text or "" for t in root.iter(f"{SVG}title")]
    assert "b\nintermediate, 2,048 bytes at offset 512\nsteps 1 to 2" in titles
    assert "make.workspace[0]\nworkspace, 700 bytes at offset 512\nstep 0" in titles
    assert any(t.startswith("static parameter: 512 B in 1 buffer") for t in titles)
    texts = "".join(t.text or "" for t in root.iter(f"{SVG}text"))
    assert "peak at step grow: 2.50 KiB live" in texts
    assert "intermediate (2)" in texts
    assert "as shading" not in texts


def test_svg_aggregates_what_is_small_and_says_so() -> None:
    text = svg_map(tiles(5000), limit=100)
    root = ElementTree.fromstring(text)
    rectangles = [
        r
        for r in root.iter(f"{SVG}rect")
        if (r.get("class") or "").endswith("k7") and r.find(f"{SVG}title") is not None
    ]
    assert len(rectangles) == 100
    assert "the 100 largest of 5,000 are drawn one by one, the others as shading" in text
    assert len(text) < 400_000


@pytest.mark.parametrize(
    "made", [columns_map([], [], [], [], [], "empty"), columns_map(["z"], [3], [3], [0], [0], "zero")]
)
def test_pictures_of_nothing(made: MemoryMap) -> None:
    ElementTree.fromstring(svg_map(made))
    assert terminal_sketch(made) == []
    assert "memory map" in html_page(made)


def test_hostile_names_stay_text_in_svg() -> None:
    made = columns_map([HOSTILE, "\ud800\x00"], [0, 0], [1, 1], [5, 5], [0, 5], HOSTILE)
    text = svg_map(made)
    root = ElementTree.fromstring(text)
    assert not list(root.iter(f"{SVG}script"))
    assert any(HOSTILE.replace("\x07", "\ufffd") in (t.text or "") for t in root.iter(f"{SVG}title"))
    text.encode("utf-8")


def test_hostile_names_stay_text_in_the_page() -> None:
    made = columns_map(
        [HOSTILE, "\ud800", "%%script%%"], [0, 0, 0], [1, 1, 1], [5, 5, 5], [0, 5, 10], "%%data%%" + HOSTILE
    )
    page = html_page(made)
    page.encode("utf-8")
    assert page.count("<script") == 2
    assert page.count("</script") == 2
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data["names"] == [HOSTILE, "\ufffd", "%%script%%"]
    assert "<title>%%data%%&lt;/script&gt;" in page


def test_the_page_loads_nothing() -> None:
    page = html_page(small())
    assert "default-src 'none'" in page
    markup = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|@import|url\(|src=|href=|fetch\(|XMLHttpRequest|\beval\(|innerHTML", markup)


def test_page_data_is_columns() -> None:
    made = small()
    found = re.search(r'id="data">(.*?)</script>', html_page(made), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    count = len(made.items)
    assert all(len(data[name]) == count for name in ("names", "k", "s", "o", "n", "h"))
    assert (data["peak"], data["peakLive"], data["bound"], data["steps"]) == (1, 2560, 2560, ["make", "grow", "end"])
    assert [data["classes"][k] for k in data["k"]] == [item.group for item in made.items]


def test_alias_members_and_refusals_reach_the_picture() -> None:
    made = program(
        [
            node("make", ["x"], ["a"]),
            node("act", ["a"], ["b"], op="Relu"),
            node("again", ["b"], ["c"], op="Relu"),
            node("end", ["a", "c"], ["y"]),
        ],
        {"x": tensor("input"), "a": tensor(None, [64], "float32")},
        outputs=["y"],
    )
    items = {item.name: item for item in plan_map(made, plan_by_hand(made)).items}
    assert items["b"].members == ("b", "c: in place of b")
    assert items["b"].notes == ("b is not in place of a: a is read later by end",)
