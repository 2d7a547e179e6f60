"""The page in a real browser: it draws, finds, picks and sorts; skipped where no Chromium is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from kgrun.cli.render.memory_map import MemoryMap, columns_map, html_page, plan_map
from tests.plan_by_hand import plan_by_hand
from tests.support import node, program, tensor

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium on PATH to run the page")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1400,900",
    "--virtual-time-budget=3000",
]  # fmt: skip


def outcome(made: MemoryMap, folder: Path, script: str) -> Any:
    """What `script`, a function body run in the page after it is drawn, returns."""
    probe = (
        "window.onerror = (text) => { document.body.dataset.fault = text; };"
        f"try {{ document.body.dataset.out = JSON.stringify((() => {{ {script} }})()); }}"
        "catch (fault) { document.body.dataset.fault = String(fault); }"
    )
    page = folder / "map.html"
    page.write_text(html_page(made).replace("</body>", f"<script>{probe}</script></body>"), encoding="utf-8")
    assert BROWSER is not None
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False).stdout
    assert "data-fault" not in shown, re.search(r'data-fault="[^"]*"', shown)
    found = re.search(r'data-out="([^"]*)"', shown)
    assert found is not None, f"the page did not run: {shown[:300]!r}"
    return json.loads(unescape(found[1]))


def layers(count: int = 6) -> MemoryMap:
    tensors = {"x": tensor("input"), "w": tensor("parameter", [4096], init={"fill": 0})}
    nodes = []
    for i in range(count):
        source = "x" if i == 0 else f"h{i - 1}"
        nodes.append(node(f"layer{i}", [source, "w"], [f"h{i}"], workspace=[3000] if i == 2 else []))
    nodes.append(node("end", [f"h{count - 1}"], ["y"]))
    made = program(nodes, tensors, outputs=["y"], name="layers </script> & <b>bold</b>")
    return plan_map(made, plan_by_hand(made))


def test_it_draws_and_every_buffer_answers_to_the_pointer(tmp_path: Path) -> None:
    made = layers()
    found = outcome(
        made,
        tmp_path,
        """
        const seen = {};
        for (let r = 0; r < rects; r++) {
          const i = data.ri[r];
          if (data.s[i]) continue;
          const x = (toX(data.r0[r]) + toX(data.r1[r])) / 2, y = (toY(data.o[i]) + toY(data.o[i] + data.h[i])) / 2;
          seen[data.names[i]] = data.names[data.ri[hit(x, y)[0]]];
        }
        const pen = base.getContext("2d"), ink = new Set();
        const shot = pen.getImageData(0, 0, base.width, base.height).data;
        for (let p = 0; p < shot.length; p += 4) ink.add((shot[p] << 16) | (shot[p + 1] << 8) | shot[p + 2]);
        return { seen, colours: ink.size, title: document.title, ready: document.body.dataset.ready };
        """,
    )
    assert found["seen"] == {item.name: item.name for item in made.dynamic}
    assert found["colours"] > 10
    assert found["title"] == "layers </script> & <b>bold</b> – memory map"
    assert found["ready"] == str(len(made.items))


def test_search_pick_and_sort(tmp_path: Path) -> None:
    found = outcome(
        layers(),
        tmp_path,
        """
        const names = () => [...document.querySelectorAll("#window .row bdi")].map((cell) => cell.textContent);
        const before = names();
        $("search").value = "H3";
        $("search").dispatchEvent(new Event("input"));
        const searched = names(), counted = $("found").textContent;
        document.querySelector("#window .row").click();
        const detail = $("detail").textContent;
        document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
        document.querySelector("#heads button").click();
        return { before, searched, counted, detail, sorted: names(), peak: $("detail").textContent };
        """,
    )
    assert found["before"][0] == "w"
    assert (found["searched"], found["counted"]) == (["h3"], "1 of 10")
    assert "Uses its bytes before" in found["detail"]
    assert found["sorted"] == sorted(found["before"])
    assert found["peak"].startswith("The peak: step 2 layer2")


def test_zoom_classes_static_and_theme(tmp_path: Path) -> None:
    found = outcome(
        layers(),
        tmp_path,
        """
        const whole = { ...state.view };
        base.dispatchEvent(new WheelEvent("wheel", { deltaY: -300, clientX: 400, clientY: 400, cancelable: true }));
        const zoomed = { ...state.view };
        $("fit").click();
        const fitted = JSON.stringify(state.view) === JSON.stringify(whole);
        $("static").click();
        const taller = state.view.y1;
        document.querySelector("#classes tbody button").click();
        const left = $("found").textContent;
        $("theme").click(); $("theme").click();
        return { whole, zoomed, fitted, taller, left, theme: document.documentElement.dataset.theme };
        """,
    )
    assert found["zoomed"]["x1"] - found["zoomed"]["x0"] < found["whole"]["x1"] - found["whole"]["x0"]
    assert found["fitted"]
    assert found["taller"] > found["whole"]["y1"]
    assert found["left"] == "9 of 10"
    assert found["theme"] == "dark"


def test_hostile_names_run_nothing(tmp_path: Path) -> None:
    bad = "</script><img src=x onerror=\"document.body.dataset.fault='ran'\"><!--<script>"
    made = columns_map([bad, "b\u202e", "\ud800"], [0, 0, 0], [2, 2, 2], [5, 5, 5], [0, 5, 10], bad)
    found = outcome(
        made,
        tmp_path,
        """
        pick(0, true);
        const r = 0, event = { clientX: 300, clientY: 300 };
        tip(rectLines(r, 0), event);
        return { heading: document.querySelector("h1").textContent, tip: $("tip").querySelector("b").textContent,
                 images: document.images.length, rows: document.querySelectorAll("#window .row").length };
        """,
    )
    assert found == {"heading": bad, "tip": bad, "images": 0, "rows": 3}


def test_sixty_thousand_buffers_are_aggregated_and_few_rows_exist(tmp_path: Path) -> None:
    count = 60_000
    start = [i // 2 for i in range(count)]
    made = columns_map(
        [f"layer{i // 7}.t{i}" for i in range(count)], start, [t + 4 for t in start], [512] * count,
        [512 * (i % 8) for i in range(count)], "many",
    )  # fmt: skip
    found = outcome(
        made,
        tmp_path,
        """
        const more = hit(box.x + box.w / 2, box.y + box.h / 2);
        const rows = $("rows");
        rows.scrollTop = rows.scrollHeight;
        drawRows();
        const all = [...document.querySelectorAll("#window .row bdi")].map((cell) => cell.textContent);
        return { hit: more[0] >= 0, more: more[1], rows: all.length, last: all[all.length - 1] };
        """,
    )
    assert found["hit"]
    assert found["more"] > 0
    assert found["rows"] < 80
    assert found["last"] == "layer8571.t59999"


@pytest.mark.parametrize("named", ["nothing", "static only"])
def test_empty_states(tmp_path: Path, named: str) -> None:
    if named == "nothing":
        made = columns_map([], [], [], [], [], "empty")
    else:
        graph = program([node("one", ["x"], ["y"])], {"x": tensor("input")}, outputs=["y"])
        made = plan_map(graph, plan_by_hand(graph))
    found = outcome(made, tmp_path, 'return { detail: $("detail").textContent, rows: $("window").textContent };')
    assert found["detail"].startswith("No dynamic memory")
    assert ("There are no buffers." in found["rows"]) == (named == "nothing")
