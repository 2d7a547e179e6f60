"""Ways to call `kgrun` in tests: in this process, or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kgrun.cli.entry import main


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """What was wrong, in words: the messages of all errors of a JSON document with their places and help."""
        rows = self.json()["errors"]
        return "\n".join(f"{row['code']} {row['message']} | {row['where']} | {row['help']}" for row in rows)


Command = Callable[..., Result]


def plain_environment() -> dict[str, str]:
    """The environment without settings of kgrun."""
    return {key: value for key, value in os.environ.items() if not key.startswith("KGRUN_")}


def called_here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `kgrun ARGUMENTS` in this process, its output piped."""
    for name in set(os.environ) - set(plain_environment()):
        monkeypatch.delenv(name)

    def call(*arguments: str | Path) -> Result:
        capfd.readouterr()
        code = main([str(each) for each in arguments])
        return Result(code, *capfd.readouterr())

    return call


def called_apart(
    *arguments: str | Path, code: str | None = None, stdin: str = "", env: Mapping[str, str] = {}
) -> Result:
    """Run `kgrun ARGUMENTS` in a process of its own; `env` adds to the environment, `code` is Python to run instead."""
    start = ["-m", "kgrun.cli"] if code is None else ["-c", code]
    done = subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        capture_output=True, encoding="utf-8", input=stdin, env=plain_environment() | dict(env), timeout=100,
        check=False,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)
