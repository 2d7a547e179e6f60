"""What all tests share: no limit of time on examples, and bytecode of the processes that tests start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import hypothesis
import pytest

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
