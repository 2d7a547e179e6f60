"""Modules that are run only when somebody uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

USES = [
    "import importlib.metadata; print(importlib.metadata.version('numpy'))",
    "import importlib.metadata as metadata; print(metadata.version('numpy'))",
    "from importlib.metadata import version; print(version('numpy'), version('numpy'))",
    "from importlib import metadata; print(metadata.version('numpy'))",
    "import importlib.metadata._text; import importlib.metadata; print(importlib.metadata.version('numpy'))",
    "from importlib.metadata import PackageNotFoundError, version\n"
    "try: version('no-such-package')\nexcept PackageNotFoundError as error: print(repr(error))",
]
LATE = "import sys; from kgrun.cli.late import import_late; import_late('importlib.metadata')\n"


def printed(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("use", USES)
def test_however_it_is_used_it_is_the_module(use: str) -> None:
    assert printed(LATE + use) == printed(use)


def test_importing_it_and_its_functions_runs_nothing() -> None:
    seen = "print(m.__spec__.name, 'email' in sys.modules, hasattr(m, '__x__'), callable(f))"
    script = LATE + f"import importlib.metadata as m; from importlib.metadata import entry_points as f; {seen}"
    assert printed(script) == "importlib.metadata False False True\n"


def test_threads_that_use_it_at_once_all_get_the_whole_module() -> None:
    """One runs it, the others wait: nobody sees the half of a module."""
    script = (
        LATE
        + """
import importlib.metadata as m, threading
begin, found = threading.Barrier(16), []
def use(number):
    begin.wait()
    if number % 2:
        from importlib.metadata import PackageNotFoundError
        found.append(PackageNotFoundError.__name__)
    else:
        found.append(m.version('numpy'))
threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
[each.start() for each in threads]
[each.join() for each in threads]
print(len(found), len(set(found)), type(m).__name__)
"""
    )
    for _ in range(5):
        assert printed(script) == "16 2 module\n"


def test_a_module_that_fails_fails_each_time(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kgrun.cli.late import import_late\n"
        "import_late('broken'); import broken\n"
        "for _ in range(2):\n"
        "    try: broken.Thing\n"
        "    except ModuleNotFoundError as error: print(error.name)\n"
    )
    assert printed(script) == "nothing_of_this_name\n" * 2


def test_what_is_there_or_does_not_exist_is_left_alone() -> None:
    script = (
        "import sys, json; from kgrun.cli.late import import_late; import_late('json'); import_late('no_such_module');"
        "print(sys.modules['json'] is json, 'no_such_module' in sys.modules)"
    )
    assert printed(script) == "True False\n"


def test_a_plain_command_does_not_read_the_metadata_of_packages() -> None:
    words = [sys.executable, "-X", "importtime", "-m", "kgrun.cli", "validate", "examples/saxpy.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pydantic" in imported
    assert "email.message" not in imported
