"""`--timeout`: exit 9 even inside a hung native call, one document, nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the supervisor needs fork")

# The command reaches `bind_graph` and hangs there in C, holding the interpreter lock.
HANG = """
import ctypes, sys
import kgrun.cli.commands.validate as validate
validate.check_graph = lambda _: ctypes.PyDLL(None).sleep(50)
import kgrun.cli.entry as entry
sys.exit(entry.main(sys.argv[1:]))
"""


def test_hung_native_call_ends_with_exit_9(process: Any) -> None:
    result = process("validate", "g.json", "--timeout", "0.3", code=HANG)
    assert result.code == 9
    assert result.err == "error[KG900]: the time limit of 0.3 s has passed\n  help: raise --timeout\n"
    assert result.out == ""


def test_timeout_is_json_when_asked_for(process: Any) -> None:
    result = process("validate", "g.json", "--timeout", "0.3", "--json", code=HANG)
    assert result.code == 9
    assert json.loads(result.out)["error"]["code"] == "KG900"
    assert result.err == ""


def test_time_limit_that_is_kept_changes_nothing(process: Any, graph_file: Any) -> None:
    path = graph_file()
    free = process("validate", path, "--json")
    for seconds in ("50", "1e300"):
        assert process("validate", path, "--timeout", seconds, "--json") == free
    assert process("validate", "missing.json", "--timeout", "50").code == 3


def test_results_being_written_are_left_alone(process: Any) -> None:
    code = """
import time
from kgrun.cli import timeout
timeout.supervise(2.0, json=False)
timeout.commit()
time.sleep(2.5)
print("whole")
"""
    result = process(code=code)
    assert (result.code, result.out, result.err) == (0, "whole\n", "")


def test_what_is_being_written_before_the_results_leaves_nothing(process: Any, tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from kgrun.cli import timeout
from kgrun.graphs.whole_files import replacing
timeout.supervise(1.0, json=False)
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    time.sleep(50)
"""
    assert process(tmp_path / "dumped.npy", code=code).code == 9
    assert list(tmp_path.iterdir()) == []


def test_commands_commit_before_they_write(kgrun: Any, graph_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kgrun.cli import output, timeout

    events: list[str] = []
    monkeypatch.setattr(timeout, "commit", lambda: events.append("commit"))
    monkeypatch.setattr(output, "write_stdout", lambda text: events.append("write"))
    assert kgrun("validate", graph_file(), "--json").code == 0
    assert events == ["commit", "write"]


def test_crash_of_the_command_is_said(process: Any) -> None:
    crash = HANG.replace("ctypes.PyDLL(None).sleep(50)", "__import__('os').kill(__import__('os').getpid(), 11)")
    result = process("validate", "g.json", "--timeout", "50", "--json", code=crash)
    assert result.code == 1
    assert json.loads(result.out)["error"]["message"] == "the run was ended by SIGSEGV"


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HANG.replace("PyDLL", "CDLL"), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
def test_the_command_does_not_outlive_its_supervisor(kill: signal.Signals) -> None:
    with start("validate", "g.json", "--timeout", "50") as running:
        deadline = time.monotonic() + 20
        while not (found := children(running.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(found) == 1
        time.sleep(0.3)  # the child has asked to die with its parent
        running.send_signal(kill)
        running.communicate(timeout=20)
        while Path(f"/proc/{found[0]}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{found[0]}").exists()
        assert running.returncode == (143 if kill == signal.SIGTERM else -signal.SIGKILL)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "soon"])
def test_what_is_no_time_is_usage(kgrun: Any, value: str) -> None:
    assert kgrun("validate", "g.json", "--timeout", value).code == 2
