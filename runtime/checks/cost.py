"""How long a custom kernel may take on the CPU: a rough figure, for a warning before a run of minutes."""

from __future__ import annotations

import os
import re

# Nanoseconds a thread and PTX instruction on one core, measured on kernels with and without barriers; the slower.
# Naming a fault takes longer.
_PLAIN_NS, _CHECKED_NS = 0.4, 2.0
_TURNS = 16  # how often a loop is taken to turn: its bound is often known only at run time
_WORTH_SAYING_S = 60.0
_LABEL = re.compile(r"^\s*(\$?[\w$]+):\s*$")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$?[\w$]+)\s*;")


def long_run(body: str, threads: int, checked: bool) -> str | None:
    """About how long `threads` threads of a PTX body take, in words; None for less than a minute."""
    each_ns = _CHECKED_NS if checked else _PLAIN_NS
    seconds = threads * instructions(body) * each_ns * 1e-9 / (os.cpu_count() or 1)
    if seconds < _WORTH_SAYING_S:
        return None
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} minute" + ("s" if minutes > 1 else "")
    hours = round(seconds / 3600)
    return f"{hours:,} hours" if hours < 48 else f"{round(hours / 24):,} days"


def instructions(body: str) -> int:
    """Instructions a thread executes, each loop taken to turn `_TURNS` times."""
    rows = body.splitlines()
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    counted: list[int] = []
    for number, row in enumerate(rows):
        if label := _LABEL.match(row):
            labels[label[1]] = number
        elif row.rstrip().endswith(";") and not row.lstrip().startswith("."):
            counted.append(number)
            branch = _BRANCH.search(row)
            if branch and branch[1] in labels:
                loops.append((labels[branch[1]], number))
    total = 0
    for number in counted:
        depth = sum(first <= number <= last for first, last in loops)
        total += _TURNS ** min(depth, 4)
    return total
