"""Runs: stale results, several streams, timing that adds up, compile caches, dimensions, command lines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.conftest import ON_EACH_DEVICE, launch, relu, value

# time-04, time-06


def test_time_04_kernels_and_whole_runs_are_both_told_and_so_is_the_gap(kgrun: Any, write: Any) -> None:
    nodes = [
        {"name": f"k{i}", "op": "Neg", "inputs": [f"t{i}" if i else "x"], "outputs": [f"t{i + 1}"]} for i in range(5)
    ]
    path = write(relu(nodes=nodes, outputs=["t5"]))
    document = kgrun("execute", path, "--device", "cpu", "--iterations", "5", "--json").json()
    rows = document["kernels"]
    assert [row["time_ns"]["count"] for row in rows] == [5] * 5
    assert document["total_ns"]["count"] == 5
    assert document["kernels_ns"] == sum(row["time_ns"]["median"] for row in rows)
    text = kgrun("execute", path, "--device", "cpu", "--iterations", "5").out
    (line,) = (line for line in text.splitlines() if "of which" in line)
    assert "kernels" in line
    assert "gaps" in line or "overlap" in line


def test_time_04_every_member_of_the_times_is_in_the_schema(kgrun: Any, write: Any) -> None:
    document = kgrun("execute", write(relu()), "--device", "cpu", "--json").json()
    told = json.dumps(kgrun("schema", "report").json())
    for name in (*document["total_ns"], *document["kernels"][0], *document):
        assert f'"{name}"' in told


def test_time_04_every_column_and_member_of_the_times_is_in_the_help_of_metrics(kgrun: Any, write: Any) -> None:
    path = write(relu())
    document = kgrun("execute", path, "--device", "cpu", "--json").json()
    lines = kgrun("execute", path, "--device", "cpu").out.splitlines()
    title = next(i for i, line in enumerate(lines) if line.startswith("Kernels"))
    columns = re.split(r"  +", lines[title + 1].strip())
    told = {line.strip().split("  ")[0] for line in kgrun("execute", "--help-metrics").out.splitlines()}
    words = {word for name in told for word in re.split(r"[ .,]+", name)} | told
    members = {*columns, *document["total_ns"], *document["kernels"][0], *document["memory"]}
    assert members - words == set()


SILENT = 'extern "C" __global__ void k(float* y) { if (blockDim.x > 1000) y[0] = 1; }'


@ON_EACH_DEVICE
def test_time_06_an_output_that_nothing_writes_is_not_taken_for_a_result(
    kgrun: Any, write: Any, tmp_path: Path, device: str
) -> None:
    np.savez(tmp_path / "zeros.npz", y=np.zeros(4, np.float32))
    for iterations in ("1", "3"):
        done = kgrun("execute", write(launch(SILENT)), "--device", device, "--iterations", iterations,
                     "--expected", tmp_path / "zeros.npz", "--json")  # fmt: skip
        assert done.code == 8
        assert done.json()["comparisons"][0]["mismatched"] == 4


ONCE = """__device__ int done;
extern "C" __global__ void k(float* y) { if (!done) { y[threadIdx.x] = 1; } __syncthreads(); done = 1; }"""


@ON_EACH_DEVICE
def test_time_06_the_result_of_an_earlier_run_is_not_taken_for_the_last(
    kgrun: Any, write: Any, tmp_path: Path, device: str
) -> None:
    np.savez(tmp_path / "ones.npz", y=np.ones(4, np.float32))
    words = ["execute", write(launch(ONCE, block=[4])), "--device", device, "--warmup", "0", "--expected"]
    assert kgrun(*words, tmp_path / "ones.npz", "--iterations", "3").code == 8


@ON_EACH_DEVICE
def test_time_06_nan_equals_no_number_unless_asked(kgrun: Any, write: Any, tmp_path: Path, device: str) -> None:
    source = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = threadIdx.x == 2 ? 0.0f / 0.0f * 1.0f : 1; }'
    graph = write(launch(source.replace("0.0f / 0.0f * 1.0f", "__int_as_float(0x7fffffff)"), block=[4]))
    ones = np.ones(4, np.float32)
    both = ones.copy()
    both[2] = np.nan
    for expected, more, code in ((ones, [], 8), (both, [], 8), (both, ["--equal-nan"], 0), (ones, ["--equal-nan"], 8)):
        np.savez(tmp_path / "expected.npz", y=expected)
        done = kgrun("execute", graph, "--device", device, "--expected", tmp_path / "expected.npz", *more)
        assert done.code == code


@pytest.mark.gpu
def test_time_06_the_time_of_a_run_covers_every_stream(kgrun: Any, write: Any) -> None:
    source = """extern "C" __global__ void k(float* y) {
      long long end = clock64() + 20000000;
      while (clock64() < end);
      y[0] = 1;
    }"""
    graph = launch(source, stream="side")
    document = kgrun("execute", write(graph), "--device", "cuda", "--iterations", "3", "--json").json()
    assert document["total_ns"]["median"] > 1_000_000  # 20 million cycles are more than 1 ms on any GPU


@pytest.mark.parametrize("streams", [("compute", "comm"), ("a", "b"), (0, 1)])
def test_time_06_work_on_several_streams_is_all_in_the_report(kgrun: Any, write: Any, streams: Any) -> None:
    nodes = [
        {"name": "a", "op": "Neg", "inputs": ["x"], "outputs": ["t"], "stream": streams[0]},
        {"name": "b", "op": "Exp", "inputs": ["x"], "outputs": ["u"], "stream": streams[1]},
        {"name": "c", "op": "Add", "inputs": ["t", "u"], "outputs": ["y"], "stream": streams[0]},
    ]
    done = kgrun("execute", write(relu(nodes=nodes)), "--device", "cpu", "--json")
    rows = done.json()["kernels"]
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    assert all(row["time_ns"]["count"] == 1 for row in rows)


# cache-01

HEADER = 'extern "C" __global__ void k(float* y) { y[0] = VALUE; }'


def run_many(path: Path, cache: Path, count: int) -> list[Any]:
    """The value of y from `count` processes at once."""
    script = "import sys; from kgrun.cli.entry import main; sys.exit(main(sys.argv[1:]))"
    import os

    words = [sys.executable, "-c", script, "execute", str(path), "--device", "cpu", "--json"]

    def one(_: int) -> Any:
        env = {**os.environ, "KGRUN_CACHE_DIR": str(cache)}
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["outputs"][0]["value"][0]

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.mark.parametrize("count", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_cache_01_processes_compile_into_an_empty_cache_at_once(write: Any, tmp_path: Path, count: int) -> None:
    path = write(launch('extern "C" __global__ void k(float* y) { y[0] = 3; }'))
    assert run_many(path, tmp_path / "cache", count) == [3] * count


def test_cache_01_a_changed_header_compiles_again_and_damage_is_repaired(write: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (tmp_path / "value.h").write_text("#define VALUE 1\n")
    path = write(launch('#include "value.h"\n' + HEADER))
    assert run_many(path, cache, 1) == [1]
    (tmp_path / "value.h").write_text("#define VALUE 2\n")
    assert run_many(path, cache, 1) == [2]
    entries = [each for each in cache.rglob("*") if each.is_file()]
    assert entries
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:-7])
    assert run_many(path, cache, 1) == [2]


# dyn-01, dyn-03

FREE = {"x": {"role": "input", "dtype": "float32", "shape": ["N"], "init": {"fill": 1}}}


@pytest.mark.parametrize("command", ["execute", "plan-memory", "validate"])
@pytest.mark.parametrize("dims", [{}, {"N": {}}, {"N": {"min": 1}}], ids=["undeclared", "bare", "ranged"])
def test_dyn_01_a_dimension_without_a_value_is_asked_for(kgrun: Any, write: Any, command: str, dims: Any) -> None:
    done = kgrun(command, write(relu(tensors=FREE, dims=dims)), "--json")
    assert (done.code, done.json()["error"]["code"]) == (2, "KG220")
    for words in ("dimension N is unbound", "--dim N=", "dims.N.default"):
        assert words in done.error


@pytest.mark.parametrize("word", ["M=4", "n=4", "N1=4"])
def test_dyn_01_a_dimension_that_is_none_is_refused(kgrun: Any, write: Any, word: str) -> None:
    done = kgrun("execute", write(relu(tensors=FREE, dims={"N": {"default": 4}})), "--dim", word, "--json")
    assert (done.code, done.json()["error"]["code"]) == (2, "KG221")
    assert "'N'" in done.error or "dimensions: N" in done.error


@pytest.mark.parametrize("word", ["N=-1", "N=1.5", "N=", "N=1e3", "N=0x10", "N=99999999999999999999", "=4", "N"])
def test_dyn_03_a_value_that_is_no_whole_number_from_0_is_refused(kgrun: Any, write: Any, word: str) -> None:
    done = kgrun("execute", write(relu(tensors=FREE, dims={})), "--dim", word, "--json")
    assert done.code == 2
    assert done.json()["error"]["code"] in ("KG252", "KG222")


@ON_EACH_DEVICE
def test_dyn_03_zero_is_an_empty_tensor(kgrun: Any, write: Any, device: str) -> None:
    done = kgrun("execute", write(relu(tensors=FREE, dims={})), "--dim", "N=0", "--device", device, "--json")
    assert value(done, "y") == []


def test_dyn_03_a_derived_zero_is_shown(kgrun: Any, write: Any) -> None:
    tensors = {"x": FREE["x"] | {"shape": ["N//3", 4]}}
    done = kgrun("validate", write(relu(tensors=tensors, dims={})), "--dim", "N=2", "--json")
    assert done.code == 0
    shapes = {row["name"]: row["shape"] for row in done.json()["tensors"]}
    assert shapes == {"x": [0, 4], "t": [0, 4], "y": [0, 4]}
    assert kgrun("plan-memory", write(relu(tensors=tensors, dims={})), "--dim", "N=2").code == 0


@pytest.mark.parametrize("extent", ["N - 3", "0 * N - 1", "N // 0", "N % 0", "cdiv(N, 0)"])
def test_dyn_03_a_derived_extent_that_is_none_is_refused_at_its_place(kgrun: Any, write: Any, extent: str) -> None:
    tensors = {"x": FREE["x"] | {"shape": [extent]}}
    done = kgrun("validate", write(relu(tensors=tensors, dims={})), "--dim", "N=2", "--json")
    assert done.code in (2, 3)
    assert "tensors.x.shape[0]" in done.error


# cli-01, cli-03, fmt-03


def test_cli_01_no_arguments_show_help_and_are_a_usage_error(process: Any) -> None:
    bare, asked = process(), process("--help")
    assert (bare.code, asked.code) == (2, 0)
    assert "Usage" in bare.out + bare.err
    assert asked.err == ""


def test_cli_01_the_command_line_library_is_bounded() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    (typer,) = (each for each in project["dependencies"] if each.startswith("typer"))
    assert "<" in typer


ENDINGS = [
    (["execute", "GRAPH", "--device", "cpu"], 0), (["execute", "missing.json"], 3), (["execute", "--nonsense"], 2),
    (["execute", "GRAPH", "--device", "cpu", "-v"], 0), (["plan-memory", "GRAPH"], 0), (["validate", "GRAPH"], 0),
    (["explain", "GRAPH", "neg"], 0), (["doctor"], 0), (["nonsense"], 2), (["execute"], 2),
    (["execute", "GRAPH", "--dim", "n=1", "--dim", "n=2"], 2), (["plan-memory", "GRAPH", "--limit", "1"], 4),
    (["execute", "GRAPH", "--timeout", "0"], 2), (["explain", "GRAPH", "nobody"], 2),
    (["execute", "GRAPH", "--iterations", "many"], 2),
    (["execute", "GRAPH", "--trace", "/nowhere/at/all.json", "--device", "cpu"], 2),
]  # fmt: skip


def check_json(done: Any, code: int) -> None:
    document = json.loads(done.out)
    assert done.code == code
    assert document["ok"] is (code == 0)
    assert "\x1b" not in done.out
    if code:
        assert {"code", "message", "where"} <= set(document["error"])


@pytest.mark.parametrize(("words", "code"), ENDINGS)
def test_cli_03_json_is_the_one_thing_on_stdout(
    kgrun: Any, write: Any, monkeypatch: pytest.MonkeyPatch, words: Any, code: int
) -> None:
    path = str(write(relu()))
    for colour in (True, False):
        if colour:
            monkeypatch.setenv("FORCE_COLOR", "1")
        else:
            monkeypatch.delenv("FORCE_COLOR")
        check_json(kgrun(*[path if word == "GRAPH" else word for word in words], "--json"), code)


@pytest.mark.parametrize(("words", "code"), ENDINGS[:3])
def test_cli_03_a_process_adds_nothing_when_it_starts_or_ends(process: Any, write: Any, words: Any, code: int) -> None:
    path = str(write(relu()))
    done = process(*[path if word == "GRAPH" else word for word in words], "--json", env={"FORCE_COLOR": "1"})
    check_json(done, code)


NASTY = 'a"b\\c\n<T,8>|`é&\u2028'


def test_fmt_03_nasty_names_survive_every_form(kgrun: Any, write: Any, tmp_path: Path) -> None:
    graph = relu()
    graph["nodes"][0]["name"] = NASTY
    graph["nodes"][0]["outputs"] = graph["nodes"][1]["inputs"] = [NASTY]
    path, trace, rows = write(graph), tmp_path / "trace.json", tmp_path / "rows.csv"
    done = kgrun("execute", path, "--device", "cpu", "--json", "--trace", trace, "--csv", rows)
    assert done.json()["kernels"][0]["name"] == NASTY
    events = json.loads(trace.read_text("utf-8"))
    events = events["traceEvents"] if isinstance(events, dict) else events
    assert NASTY in [event.get("name") for event in events]
    import csv

    with rows.open(encoding="utf-8", newline="") as file:
        assert NASTY in [row["name"] for row in csv.DictReader(file)]
    text = kgrun("execute", path, "--device", "cpu").out
    assert not [line for line in text.splitlines() if line.startswith("<T,8>")]
    plan = kgrun("plan-memory", path, "--json").json()
    assert NASTY in [row["name"] for row in plan["tensors"]]


def test_fmt_03_nasty_names_survive_in_the_picture(kgrun: Any, write: Any, tmp_path: Path) -> None:
    graph = relu()
    graph["nodes"][0]["outputs"] = graph["nodes"][1]["inputs"] = ["</script><b>" + NASTY]
    page = tmp_path / "map.html"
    done = kgrun("plan-memory", write(graph), "--html", page)
    assert done.code == 0, done.err
    text = page.read_text("utf-8")
    assert "</script><b>" not in text
