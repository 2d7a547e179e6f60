"""docs/commands.md is true: its commands run, and each command's section names exactly the options it takes."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from kgrun.cli.app import COMMANDS, build_command
from kgrun.cli.render.schema import report_schema

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
REPORTS = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")


def shell_lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("kgrun ")]


@pytest.mark.parametrize("line", shell_lines())
def test_documented_command_runs(kgrun: Any, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    command, _, comment = line.partition("#")
    exit_code = int(comment.removeprefix(" exit ")) if comment else 0
    result = kgrun(*shlex.split(command)[1:])
    assert result.code == exit_code, result.err
    assert (result.out == "") == (exit_code != 0 and "--json" not in command)


def test_the_error_shown_is_what_such_a_graph_ends_with(
    kgrun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.search(r"^    (error\[KG331\].*\n)    (.*\n)    (.*\n)", PAGE, re.MULTILINE)
    assert shown
    lines = ["kgrun: 1", "name: typo", "tensors:", "  x: {role: input, dtype: float32, shape: [4], init: {fill: 1}}"]
    lines += ["nodes:", "  - {name: act, op: Reluu, inputs: [x], outputs: [y]}", "outputs: [y]"]
    (tmp_path / "graph.yaml").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert kgrun("validate", "graph.yaml").err == "".join(shown.groups())


def section(name: str) -> str:
    return PAGE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_section_names_exactly_the_options(name: str) -> None:
    options = {
        max((flag for flag in param.opts if flag.startswith("--")), key=len)
        for param in build_command(name).params
        if param.param_type_name == "option"
    }
    opposites = {flag for param in build_command(name).params for flag in param.secondary_opts}
    documented = set(re.findall(r"--[a-z][a-z-]*", section(name)))
    assert documented - {"--help"} >= options | opposites - {"--help"}
    assert documented <= options | opposites | {"--help"}


def test_shared_options_are_described_once() -> None:
    table = section("Options of several commands")
    counts: dict[str, int] = {}
    for name in COMMANDS:
        for param in build_command(name).params:
            for flag in param.opts:
                if flag.startswith("--") and flag != "--help":
                    counts[flag] = counts.get(flag, 0) + 1
    for flag, count in counts.items():
        described = re.search(rf"^\| .*`{flag}[ `]", table, re.MULTILINE)
        assert bool(described) == (count > 1), flag


def test_every_exit_code_is_documented() -> None:
    from kgrun.graphs.errors import KgrunError

    table = dict(re.findall(r"^\| (\d+) \| (.+) \|$", section("Exit codes"), re.MULTILINE))
    assert {kind.exit for kind in KgrunError.__subclasses__()} | {0} == {int(code) for code in table}


def test_every_member_of_the_documents_is_documented() -> None:
    schema = report_schema()["$defs"]
    for name in ("execute", "plan_memory", "validate", "doctor", "memory", "stats"):
        for member in schema[name]["properties"]:
            assert f"`{member}`" in REPORTS, f"{name}: {member}"
