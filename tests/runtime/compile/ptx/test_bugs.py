"""Every planted bug is found: its kind, its source line, the block and thread; and the process lives on."""

from __future__ import annotations

import re

import pytest

from tests.runtime.compile.ptx.corpus import BUGS
from tests.runtime.compile.ptx.harness import ALL_CHECKS, Bug, launch

pytest.importorskip("llvmlite")
pytest.importorskip("cuda.bindings")


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random:7"])
@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_planted_bug_is_found_at_its_line(bug: Bug, schedule: str) -> None:
    result = launch(
        bug.source,
        bug.args(),
        grid=bug.grid,
        block=bug.block,
        shared=bug.shared,
        checks=ALL_CHECKS,
        schedule=schedule,
        readonly=bug.readonly,
        outputs=bug.outputs,
    )
    lines = {number for number, text in enumerate(bug.source.splitlines(), 1) if re.search(rf"// {bug.line}$", text)}
    found = [fault for fault in result.faults if fault.kind == bug.kind]
    assert found, [str(fault) for fault in result.faults]
    assert {fault.kind for fault in result.faults} <= {bug.kind, *bug.also}
    assert any(fault.line in lines or (fault.other and fault.other.line in lines) for fault in found), str(found[0])
    if schedule == "forward" and bug.thread:
        assert found[0].thread == bug.thread
    if schedule == "forward" and bug.block_index:
        assert found[0].block == bug.block_index


def test_there_are_enough_bugs() -> None:
    assert len(BUGS) >= 25
