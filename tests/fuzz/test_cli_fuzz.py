"""Whatever the file, a command ends with a documented exit code, one report or error, soon, and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kgrun.cli.entry import main
from tests.fuzz.cli_cases import cases
from tests.fuzz.run_cli_cases import MEMORY

ROOT = Path(__file__).parents[2]
PARTS = 4


def run(folder: Path, scale: int, seed: int, part: int, parts: int, seconds: int) -> Any:
    """The outcomes of a part of the cases; a hang is told with the case that hangs."""
    words = [sys.executable, "-m", "tests.fuzz.run_cli_cases", folder, scale, seed, part, parts]
    try:
        done = subprocess.run(
            [str(word) for word in words], cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"case {(folder / 'now.txt').read_text()} does not end")
    assert done.returncode == 0, f"case {(folder / 'now.txt').read_text()} ended the process: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def check(found: Any, least: int) -> None:
    assert found["failures"] == [], f"{found['count']} cases fail"
    assert sum(found["outcomes"].values()) >= least
    assert found["outcomes"]["0"] >= least // 10  # some are still good graphs: the whole way was walked
    assert found["peak"] < MEMORY


@pytest.mark.parametrize("part", range(PARTS))
def test_broken_files_end_in_documented_exit_codes(tmp_path: Path, part: int) -> None:
    check(run(tmp_path, 1, 1, part, PARTS, 100), 500)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_more_broken_files(tmp_path: Path, part: int) -> None:
    check(run(tmp_path, 10, 2, part, PARTS, 1700), 5000)


def test_the_cases_are_many_and_always_the_same() -> None:
    first = [hash((case.name, case.data, case.words)) for case in cases(1, 1)]
    assert len(first) >= 2000
    assert first == [hash((case.name, case.data, case.words)) for case in cases(1, 1)]


def tensors(**shapes: Any) -> dict[str, Any]:
    return {
        "kgrun": 1,
        "tensors": {
            name: {"role": "input", "dtype": "float32", "shape": shape, "init": {"fill": 1}}
            for name, shape in shapes.items()
        },
        "nodes": [{"name": f"of_{name}", "op": "Neg", "inputs": [name], "outputs": [f"neg_{name}"]} for name in shapes],
        "outputs": [f"neg_{name}" for name in shapes],
    }


@pytest.mark.parametrize(
    "graph",
    [
        tensors(x=[2**31, 2**31]),
        tensors(x=[2**63 - 1]),
        tensors(x=[0, 2**62, 2**62]),  # no elements, but no array of such a shape exists
        tensors(**{f"x{i}": [2**50] for i in range(16)}),
    ],
    ids=["product", "extent", "empty", "sum"],
)
@pytest.mark.parametrize("command", ["validate", "plan-memory", "execute"])
def test_sizes_beyond_any_memory_are_refused_by_number(
    graph: Any, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "huge.json"
    path.write_text(json.dumps(graph))
    assert main([command, str(path), "--json", *(["--device", "cpu"] if command == "execute" else [])]) == 4
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "KG400"
    assert "tensors.x" in error["where"]


def test_more_than_the_host_has_is_refused_before_it_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.json"
    path.write_text(json.dumps(tensors(x=[2**40])))  # 4 TiB: a plan is possible, a run is not
    assert main(["plan-memory", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory"]["peak_bytes"] == 2 * 2**42
    assert main(["execute", str(path), "--device", "cpu", "--json"]) == 4
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "KG402"
    assert f"{2 * 2**42:,} bytes" in error["message"]
