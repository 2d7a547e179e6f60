"""Write docs/behaviours.md: for each numbered behaviour the tests that hold it, or why it does not apply.

A test holds a behaviour when its name bears the number: `test_S39_ref_outputs_share_the_address`. `--check` writes
nothing and fails when the page is out of date.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "behaviours.md"
NUMBER = re.compile(r"(?<![A-Za-z0-9])([SB]\d{1,3})(?![0-9])")


def tests_by_number() -> dict[str, list[str]]:
    """Test functions by the numbers in their names, as `path::name`."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in NUMBER.findall(node.name.replace("_", " ")):
                    found.setdefault(number, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def render() -> str:
    """The page's text."""
    rows = tomllib.loads((ROOT / "scripts" / "behaviours.toml").read_text(encoding="utf-8"))
    tests = tests_by_number()
    unknown = sorted(set(tests) - set(rows))
    if unknown:
        raise SystemExit(f"tests bear numbers that are no behaviour: {', '.join(unknown)}")
    held = sum(number in tests for number in rows)
    reasoned = sum("reason" in row and number not in tests for number, row in rows.items())
    lines = [
        "# Behaviours",
        "",
        "Made by `python scripts/behaviours.py` from the names of the tests. S rows are behaviours of the runtimes",
        "that kgrun re-implements; B rows are defects of theirs, with the rule that kgrun follows instead.",
        "",
        f"{held} of {len(rows)} rows are held by tests, {reasoned} do not apply, "
        f"{len(rows) - held - reasoned} are open.",
        "",
        "| row | behaviour | where it is held |",
        "| --- | --- | --- |",
    ]
    for number, row in rows.items():
        places = "<br>".join(f"`{t}`" for t in tests.get(number, []))
        reason = f"does not apply: {row['reason']}" if "reason" in row else "open"
        lines.append(f"| {number} | {row['title']} | {places or reason} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, or compare it."""
    text = render()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            raise SystemExit("docs/behaviours.md is out of date: run python scripts/behaviours.py")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
