"""The timeline of transfers in the HTML page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import partial

from kgrun.cli.render.memory_map import html_page, plan_map
from kgrun.cli.render.memory_map.timeline import Bar, _joined, timeline
from kgrun.graphs.bind import bind
from kgrun.runtime.lower import lower
from kgrun.runtime.memory.offload.fit import plan_within
from kgrun.runtime.memory.plan import plan_memory
from tests.runtime.memory.offload.test_offload_state import training


def test_every_step_and_transfer_has_a_bar_inside_the_predicted_time() -> None:
    program = lower(bind(training()), "cpu")
    least = plan_memory(program).peak_bytes // 2
    fitted, plan = plan_within(program, partial(plan_memory), least, "auto")
    assert fitted.offload is not None
    markup = timeline(fitted)
    root = ET.fromstring(markup)
    bars = root.findall(".//rect")
    assert len(bars) == len(fitted.steps)
    for bar in bars:
        start, wide = float(bar.get("x", "nan")), float(bar.get("width", "nan"))
        assert 70 <= start <= start + wide <= 1000.3
    page = html_page(plan_map(fitted, plan))
    assert markup in page
    assert "%%" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert (
        "transfers"
        not in html_page(plan_map(program, plan_memory(program))).partition("</style>")[2].partition("<script")[0]
    )


def test_bars_that_nearly_touch_are_joined() -> None:
    bars = [Bar(0, 1, "a"), Bar(1.2, 2, "b"), Bar(2.1, 3, "c"), Bar(9, 10, "d")]
    assert [(b.start, b.end, b.text) for b in _joined(bars, 0.5)] == [(0, 3, "a … c"), (9, 10, "d")]
