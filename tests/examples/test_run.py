"""The examples as a new user runs them: every command of examples/README.md, and README.md's own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kgrun.cli.entry import main

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = re.findall(r"^    kgrun (execute .+)$", (ROOT / "examples" / "README.md").read_text("utf-8"), re.MULTILINE)


def kgrun(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KGRUN_") or k == "KGRUN_CACHE_DIR"}
    return subprocess.run(
        [sys.executable, "-m", "kgrun.cli", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_the_readme_lists_commands_for_every_example() -> None:
    named = {Path(shlex.split(command)[1]).name for command in COMMANDS}
    assert named == {path.name for path in (ROOT / "examples").glob("*.yaml")}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_readmes_commands_run_and_agree_with_the_expected_outputs(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    if "--output-dir" in words:
        words[words.index("--output-dir") + 1] = str(tmp_path)
    if "--save-parameters" in words:
        words[words.index("--save-parameters") + 1] = str(tmp_path / "trained.safetensors")
    if "--load-parameters" in words:  # what another command saves; here what the example trains to
        words[words.index("--load-parameters") + 1] = "examples/data/digits_mlp.safetensors"
    done = kgrun(*words, "--device", "cpu", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    if "--expected" in words:
        assert document["comparisons"]
        assert all(row["ok"] for row in document["comparisons"])


def test_digits_are_recognised() -> None:
    done = kgrun("execute", "examples/digits.yaml", "--device", "cpu", "--json")
    outputs = {row["name"]: row for row in json.loads(done.stdout)["outputs"]}
    assert outputs["predictions"]["shape"][0] >= 200
    assert outputs["accuracy"]["value"] >= 0.95


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_examples_validate_strictly_and_plan_at_the_lower_bound(
    path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for name in [name for name in os.environ if name.startswith("KGRUN_")]:
        monkeypatch.delenv(name)
    assert main(["validate", str(path), "--strict"]) == 0
    capfd.readouterr()
    assert main(["plan-memory", str(path), "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    memory = document["memory"]
    if len({step["stream"] for step in document["steps"]}) > 1:
        # What two streams keep apart beyond the order of the steps, and contiguous groups, the bound does not know.
        assert memory["lower_bound_bytes"] <= memory["dynamic_bytes"] <= 1.1 * memory["lower_bound_bytes"]
        return
    assert memory["dynamic_bytes"] == memory["lower_bound_bytes"]
    assert memory["optimal"] is True


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_examples_say_what_they_show_and_point_editors_at_the_schema(path: Path) -> None:
    first, second, *_ = path.read_text("utf-8").splitlines()
    assert {
        first.startswith("# yaml-language-server: $schema="),
        second.startswith("# yaml-language-server: $schema="),
    } == {
        True,
        False,
    }
    assert all(line.startswith("# ") and len(line) > 20 for line in (first, second))


def test_the_readmes_python_runs(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert code is not None
    done = subprocess.run([sys.executable, "-c", code[1]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) >= 0.95
