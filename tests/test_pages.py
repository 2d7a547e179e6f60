"""Pages that scripts make are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_of_behaviours_is_made_from_the_tests() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/behaviours.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "behaviours.md").read_text("utf-8")
    assert page.count("\n| S") == 155
    assert page.count("\n| B") == 27
