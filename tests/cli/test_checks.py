"""`execute --check`, `--schedule`, `--allow-skip` and `validate --target`, as a user meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.cli.render.schema import report_schema

pytest.importorskip("cuda.bindings")
pytest.importorskip("llvmlite")

X = {"role": "input", "dtype": "float32", "shape": [32], "init": {"fill": 1}}
OVER = 'extern "C" __global__ void k(const float* x, float* y) {\n  int i = threadIdx.x;\n  y[i + 1] = x[i];\n}'
GOOD = OVER.replace("i + 1", "i")
WGMMA = GOOD.replace("int i", 'asm volatile("wgmma.fence.sync.aligned;");\n  int i')


@pytest.fixture
def custom(tmp_path: Path) -> Any:
    """Write a graph x -> k -> y around `source` and return its path."""

    def write(source: str = GOOD, **changes: Any) -> Path:
        launch = {"name": "n", "kernel": "k", "inputs": ["x"], "outputs": ["y"], "grid": [1], "block": [32]}
        node = {**launch, **changes}
        graph = {
            "kgrun": 1,
            "tensors": {"x": X, "y": {"dtype": "float32", "shape": [32]}},
            "kernels": {"k": {"source": source, "entry": "k"}},
            "nodes": [node],
            "outputs": ["y"],
        }
        path = tmp_path / "graph.json"
        path.write_text(json.dumps(graph))
        return path

    return write


def execute(kgrun: Any, path: Path, *more: object) -> Any:
    return kgrun("execute", path, "--device", "cpu", *more)


def fits(name: str) -> dict[str, Any]:
    schema = report_schema()
    return {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}


def test_a_finding_ends_with_exit_8_after_the_whole_report(kgrun: Any, custom: Any, faults: Any) -> None:
    done = execute(kgrun, custom(OVER), "--check", "all", "--json")
    assert done.code == 8
    document = done.json()
    assert faults(document, fits("execute")) == []
    assert [row["check"] for row in document["checks"]] == ["bounds", "init"]
    assert [error["code"] for error in document["errors"]] == ["KG810", "KG812"]
    first = document["errors"][0]
    assert first["where"].endswith("graph.json: kernels.k.source (line 3)")
    assert first["details"]["thread"] == [31, 0, 0]
    assert "writes y element 32, out of bounds: y has 32 elements" in first["message"]
    assert document["outputs"][0]["name"] == "y"


def test_findings_in_words(kgrun: Any, custom: Any) -> None:
    done = execute(kgrun, custom(OVER), "--check", "bounds,init")
    assert done.code == 8
    assert "checks       bounds, init: 2 findings" in done.out
    assert done.err.count("error[KG81") == 2


def test_a_clean_run_says_what_was_checked(kgrun: Any, custom: Any) -> None:
    done = execute(kgrun, custom(), "--check", "all", "--schedule", "random:3", "--json")
    assert done.code == 0
    document = done.json()
    assert document["checked"] == ["bounds", "race", "barrier", "init", "nan", "readonly", "redzone"]
    assert document["checks"] == document["skipped"] == document["uncomputed"] == []


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--check", "boudns"], "KG214", "did you mean 'bounds'?"),
        (["--check", "bounds,"], None, ""),
        (["--schedule", "backward"], "KG211", "forward, reverse, random:SEED"),
    ],
)
def test_words_that_are_none_are_usage_errors(kgrun: Any, custom: Any, words: Any, code: Any, text: str) -> None:
    done = execute(kgrun, custom(), *words, "--json")
    assert done.code == (2 if code else 0)
    if code:
        assert done.json()["error"]["code"] == code
        assert text in done.json()["error"]["help"]


def test_what_cannot_run_ends_with_exit_7_and_its_line(kgrun: Any, custom: Any) -> None:
    done = execute(kgrun, custom(WGMMA), "--json")
    assert done.code == 7
    error = done.json()["error"]
    assert "wgmma" in error["message"]
    assert error["where"].endswith("kernels.k.source (line 2)")
    assert "--allow-skip" in error["help"]


def test_allow_skip_names_what_did_not_run(kgrun: Any, custom: Any, faults: Any) -> None:
    done = execute(kgrun, custom(WGMMA), "--allow-skip", "--json")
    assert done.code == 0
    document = done.json()
    assert faults(document, fits("execute")) == []
    assert [row["name"] for row in document["skipped"]] == ["n"]
    assert document["uncomputed"] == ["y"]
    assert document["outputs"][0]["sha256"]
    shown = execute(kgrun, custom(WGMMA), "--allow-skip")
    assert "Not run" in shown.out
    assert "no result in y" in shown.out


def test_a_skipped_output_never_equals_what_is_expected(kgrun: Any, custom: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "want.npz", y=np.full(32, np.nan, np.float32))
    path = custom(WGMMA)
    want = ("--expected", tmp_path / "want.npz", "--equal-nan", "--json")
    done = execute(kgrun, path, "--allow-skip", *want)
    assert done.code == 8
    assert done.json()["comparisons"][0]["reason"] == "not computed: a kernel was skipped"


def test_findings_and_differences_are_both_told(kgrun: Any, custom: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "want.npz", y=np.zeros(32, np.float32))
    done = execute(kgrun, custom(OVER), "--check", "bounds", "--expected", tmp_path / "want.npz", "--json")
    assert done.code == 8
    assert [error["code"] for error in done.json()["errors"]] == ["KG810", "KG801"]


def test_a_long_kernel_is_warned_of(kgrun: Any, custom: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kgrun.runtime.checks import cost

    monkeypatch.setattr(cost, "_WORTH_SAYING_S", 0.0)
    done = execute(kgrun, custom())
    assert done.code == 0
    assert "warning: 'n' may take about 0 minute on the CPU (32 threads)" in done.err


ENDLESS = """extern "C" __global__ void k(const float* x, float* y) {
  for (unsigned a = 1;; y[a % 32] = a) {
    a = a * 1664525u + 1013904223u;
    if (a == 0x12345678u && x[0] < 0) break;
  }
}"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the supervisor needs fork")
def test_timeout_ends_a_kernel_that_never_ends(process: Any, custom: Any) -> None:
    done = process("execute", custom(ENDLESS), "--device", "cpu", "--timeout", "4", "--json")
    assert done.code == 9
    assert json.loads(done.out)["error"]["exit"] == 9


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_ends_a_kernel_that_never_ends(custom: Any) -> None:
    command = [sys.executable, "-m", "kgrun.cli", "execute", str(custom(ENDLESS)), "--device", "cpu"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell has it ignored
    ) as child:  # fmt: skip
        deadline = time.monotonic() + 40
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(3)  # loading and compiling take about a second
            child.send_signal(signal.SIGINT)
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                continue
        code = child.poll()
        if code is None:
            child.kill()
        err = child.stderr.read() if child.stderr else ""
    assert code == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err


# validate --target


def test_validate_compiles_each_kernel(kgrun: Any, custom: Any, faults: Any) -> None:
    done = kgrun("validate", custom(), "--target", "sm_90", "--json")
    assert done.code == 0
    document = done.json()
    assert faults(document, fits("validate")) == []
    (row,) = document["kernels"]
    assert document["target"] == "sm_90"
    assert row["params"] == ["float const*", "float*"]
    assert row["registers"] > 0
    assert "Kernels for sm_80" in kgrun("validate", custom(), "--target", "sm_80").out


def test_launch_15_an_error_in_inline_yaml_has_the_line_of_the_graph_file(kgrun: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(
        "kgrun: 1\n"
        "tensors: {y: {dtype: float32, shape: [1]}}\n"
        "kernels:\n"
        "  k:\n"
        "    entry: k\n"
        "    source: |\n"
        '      extern "C" __global__ void k(float* y) {\n'
        "        float a = 1;\n"
        "        y[0] = b;\n"
        "      }\n"
        "nodes:\n"
        "  - {name: n, kernel: k, outputs: [y], grid: [1], block: [1]}\n"
        "outputs: [y]\n"
    )
    for command in (["validate", path, "--target", "sm_90"], ["execute", path, "--device", "cpu"]):
        done = kgrun(*command, "--json")
        assert done.code == 5
        error = done.json()["error"]
        assert error["where"] == f"{path}: kernels.k.source (line 9)"
        assert error["details"]["source_line"] == 3
        assert "y[0] = b;" in error["message"]
        assert 'identifier "b" is undefined' in error["details"]["log"]


def test_launch_15_an_error_in_inline_json_has_the_line_of_the_source(kgrun: Any, custom: Any) -> None:
    done = kgrun("validate", custom(GOOD.replace("x[i]", "z[i]")), "--target", "sm_90", "--json")
    assert done.code == 5
    assert done.json()["error"]["where"].endswith("graph.json: kernels.k.source (line 3)")


def test_launch_15_an_error_in_a_file_has_its_line(kgrun: Any, custom: Any, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(GOOD.replace("x[i]", "z[i]"))
    done = kgrun("validate", custom("k.cu"), "--target", "sm_90", "--json")
    assert done.code == 5
    assert done.json()["error"]["where"] == f"{tmp_path}/k.cu (line 3)"


@pytest.mark.parametrize(
    ("signature", "args", "words"),
    [
        ("const float* x, float* y, int n", ["x", "y", {"int64": 1}], "takes 4 bytes, but int64 has 8"),
        ("const float* x, float* y, int n", ["x", "y", {"float32": 1}], "is passed float32"),
        ("const float* x, float* y, int n", ["x", "y"], "takes 3 arguments"),
        ("const float* x, const float* y", ["x", "y"], "the kernel cannot write it"),
    ],
)
def test_launch_03_arguments_that_contradict_the_signature(
    kgrun: Any, custom: Any, signature: str, args: Any, words: str
) -> None:
    path = custom(f'extern "C" __global__ void k({signature}) {{}}', args=args)
    done = kgrun("validate", path, "--target", "sm_90", "--json")
    assert done.code == 3
    assert words in done.json()["error"]["message"]
    assert done.json()["error"]["code"] == "KG341"


def test_bounds_of_the_compiled_kernel_are_held(kgrun: Any, custom: Any) -> None:
    bounded = custom(GOOD.replace("void k", "void __launch_bounds__(16) k"))
    done = kgrun("validate", bounded, "--target", "sm_90", "--json")
    assert (done.code, done.json()["error"]["code"]) == (3, "KG361")
    shared = GOOD.replace("int i", "__shared__ float s[12000];\n  s[threadIdx.x] = x[0];\n  y[0] = s[1];\n  int i")
    done = kgrun("validate", custom(shared, shared=200_000), "--target", "sm_90", "--json")
    assert (done.code, done.json()["error"]["code"]) == (3, "KG360")
    assert "48000 static" in done.json()["error"]["message"]


def test_pointers_of_another_type_are_a_warning_and_strict_refuses_them(kgrun: Any, custom: Any) -> None:
    path = custom(GOOD.replace("const float* x", "const double* x"))
    done = kgrun("validate", path, "--target", "sm_90", "--json")
    assert [row["code"] for row in done.json()["warnings"]] == ["W-ELEMENT-TYPE"]
    assert kgrun("validate", path, "--target", "sm_90", "--strict").code == 3


def test_ptx_and_cubins_are_checked_by_size(kgrun: Any, custom: Any, tmp_path: Path) -> None:
    from kgrun.runtime.compile.nvrtc import compile_cuda

    source = GOOD.replace("float* y)", "float* y, int n)")
    for kind in ("ptx", "cubin"):
        (tmp_path / f"k.{kind}").write_bytes(compile_cuda(source, name="k.cu", arch="sm_90", kind=kind).image)
        good = custom(f"k.{kind}", args=["x", "y", {"int32": 1}])
        assert kgrun("validate", good, "--target", "sm_90").code == 0
        bad = custom(f"k.{kind}", args=["x", "y", {"int64": 1}])
        assert kgrun("validate", bad, "--target", "sm_90").code == 3
        assert kgrun("validate", good, "--target", "sm_80").code == 5


def test_without_a_compiler_only_target_needs_one(kgrun: Any, custom: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    assert kgrun("validate", custom()).code == 0
    done = kgrun("validate", custom(), "--target", "sm_90", "--json")
    assert done.code == 7
    assert "NVRTC is not installed" in done.json()["error"]["message"]


def test_two_architectures_are_refused(kgrun: Any, custom: Any) -> None:
    assert kgrun("validate", custom(), "--target", "sm_90", "--arch", "sm_80").code == 2
    assert kgrun("validate", custom(), "--target", "sm_9").code == 2
