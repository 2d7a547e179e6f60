"""The estimate before a long kernel: in words, and only where it is long."""

from __future__ import annotations

import pytest

from kgrun.runtime.checks.cost import instructions, long_run

STRAIGHT = """
  .reg .b32 %r<4>;
  mov.u32 %r1, %tid.x;
  add.s32 %r2, %r1, 1;
$L__BB0_1:
  ret;
"""
LOOP = """
  mov.u32 %r1, 0;
$L__BB0_2:
  add.s32 %r1, %r1, 1;
  setp.lt.s32 %p1, %r1, %r2;
  @%p1 bra $L__BB0_2;
  ret;
"""


def test_instructions_count_loops_many_times() -> None:
    assert instructions(STRAIGHT) == 3
    assert instructions(LOOP) == 2 + 3 * 16


def test_a_branch_forward_is_no_loop() -> None:
    assert instructions("  @%p1 bra $L1;\n  mov.u32 %r1, 0;\n$L1:\n  ret;\n") == 3


def test_only_long_runs_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert long_run(STRAIGHT, 10**6, checked=False) is None
    assert long_run(STRAIGHT, 10**11, checked=False) == "1 minute"
    assert long_run(STRAIGHT, 10**11, checked=True) == "5 minutes"
    assert long_run(STRAIGHT, 2 * 10**13, checked=True) == "17 hours"
    assert str(long_run(STRAIGHT, 10**15, checked=True)).endswith(" days")
