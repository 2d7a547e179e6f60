"""docs/operators.md says what the registries say."""

from __future__ import annotations

import runpy
from pathlib import Path

from kgrun.graphs.operators import all_schemas

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "operators_table.py"))
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    assert script["render"]() == page, "run python scripts/operators_table.py"
    assert all(f"\n| {name} " in page for name in all_schemas())
