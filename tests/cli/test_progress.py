"""Progress: nothing for what is quick, one line for what is slow, never on a pipe unless asked for."""

from __future__ import annotations

import threading

import pytest

from kgrun.cli import progress
from kgrun.cli.output import Output


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.05)
    monkeypatch.setattr(progress, "INTERVAL", 0.05)


def test_slow_phase_is_told_with_v(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.phase("planning", Output(verbose=True)):
        threading.Event().wait(0.2)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "planning …"
    assert lines[1].startswith("planning: 0.")


def test_pipe_without_v_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.phase("planning", Output()):
        threading.Event().wait(0.1)
    assert capsys.readouterr() == ("", "")


def test_quiet_beats_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.phase("planning", Output(verbose=True, quiet=True)):
        threading.Event().wait(0.1)
    assert capsys.readouterr().err == ""


def test_failure_passes_through(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 60.0)
    with pytest.raises(ZeroDivisionError), progress.phase("planning", Output(verbose=True)):
        raise ZeroDivisionError
    assert capsys.readouterr().err == ""
