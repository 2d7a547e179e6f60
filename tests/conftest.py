"""What all tests share: calls of kgrun, no limit of time on examples, threads and bytecode of processes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Tests run side by side on all cores: threads of numpy's products would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tests.commands import Command, called_apart, called_here

hypothesis.settings.register_profile("kgrun", deadline=None)  # no test asserts on wall time
hypothesis.settings.load_profile("kgrun")


@pytest.fixture(scope="session", autouse=True)
def _bytecode_of_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where Python is told to write no bytecode, the hundreds of processes share some outside the source tree.

    Each would compile all of kgrun anew, which takes as long as what most of them do.
    """
    with pytest.MonkeyPatch.context() as patch:
        if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
            base = tmp_path_factory.getbasetemp()
            shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
            patch.setenv("PYTHONPYCACHEPREFIX", str(shared / "bytecode"))
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture
def kgrun(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`tests.commands.called_here`."""
    return called_here(capfd, monkeypatch)


@pytest.fixture
def process() -> Command:
    """`tests.commands.called_apart`."""
    return called_apart


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a graph (a mapping, or text as it stands) to a file and return its path."""

    def call(graph: Mapping[str, Any] | str, name: str = "graph.json") -> Path:
        path = tmp_path / name
        path.write_text(graph if isinstance(graph, str) else json.dumps(graph), encoding="utf-8")
        return path

    return call
