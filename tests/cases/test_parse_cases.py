"""Reading files: YAML 1.2 scalars, JSON numbers, duplicate keys, bombs, files of another kind, array types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from kgrun.graphs.load import parse_graph
from tests.cases.conftest import relu, value

NODE = "nodes: [{name: n, op: Identity, inputs: [x], outputs: [y]}]\noutputs: [y]\n"


def constant(text: str) -> str:
    return f"kgrun: 1\ntensors: {{x: {{role: constant, dtype: float64, value: [{text}]}}}}\n{NODE}"


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e-5", 1e-5), ("1e5", 1e5), ("1.0e+10", 1e10), ("-1E-3", -1e-3), (".5", 0.5), ("5.", 5.0), ("+1e2", 100.0)],
)
def test_yaml_01_scientific_notation_is_a_float(kgrun: Any, write: Any, text: str, number: float) -> None:
    done = kgrun("execute", write(constant(text), "g.yaml"), "--device", "cpu", "--json")
    assert value(done, "y") == [number]


@pytest.mark.parametrize("text", ["1e-5", "1e5", "1.0e+10", "-1E-3"])
def test_yaml_01_json_and_yaml_agree(text: str) -> None:
    graph = '{"kgrun": 1, "tensors": {"x": {"role": "constant", "dtype": "float64", "value": [NUMBER]}}}'
    graph = graph.replace("NUMBER", text)
    as_json, as_yaml = (parse_graph(graph.encode(), name="g", format=form) for form in ("json", "yaml"))
    assert as_json.tensors["x"].value == as_yaml.tensors["x"].value
    assert isinstance(as_json.tensors["x"].value[0], float)


@pytest.mark.parametrize(("text", "extent"), [("017", 17), ("0o17", 15), ("0x1F", 31), ("00", 0)])
def test_yaml_03_integers_are_those_of_the_core_schema(kgrun: Any, write: Any, text: str, extent: int) -> None:
    graph = f"kgrun: 1\ntensors: {{x: {{role: input, dtype: uint8, shape: [{text}], init: {{fill: 1}}}}}}\n{NODE}"
    done = kgrun("validate", write(graph, "g.yaml"), "--json")
    assert {row["name"]: row["shape"] for row in done.json()["tensors"]}["x"] == [extent]


@pytest.mark.parametrize("text", ["12:30:45", "2001-01-01", "1_000", "no", "on", "off", "yes", "0b101", "190:20:30"])
def test_yaml_03_other_words_are_texts(text: str) -> None:
    graph = parse_graph(f"kgrun: 1\nname: {text}\n".encode(), name="g.yaml", format="yaml")
    assert graph.name == text


@pytest.mark.parametrize("text", ["12:30:45", "2001-01-01", "1_000"])
def test_yaml_03_a_text_is_no_number(kgrun: Any, write: Any, text: str) -> None:
    graph = f"kgrun: 1\ndims: {{n: {text}}}\n{NODE}"
    done = kgrun("validate", write(graph, "g.yaml"), "--json")
    assert done.code == 3
    assert "dims.n" in done.error


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999", "9" * 400])
def test_json_01_what_is_no_finite_number_is_refused(kgrun: Any, write: Any, number: str) -> None:
    text = json.dumps(relu(tensors={"x": {"role": "constant", "dtype": "float32", "value": ["HERE"]}}))
    done = kgrun("validate", write(text.replace('"HERE"', number)), "--json")
    assert done.code == 3
    assert "line 1, column" in done.error


@pytest.mark.parametrize(("word", "number"), [("nan", None), ("inf", None), ("-inf", None)])
def test_json_01_the_words_are_values_and_reports_have_null(kgrun: Any, write: Any, word: str, number: None) -> None:
    graph = relu(
        tensors={"x": {"role": "input", "dtype": "float32", "shape": [2], "init": {"fill": word}}},
        nodes=[{"name": "n", "op": "Neg", "inputs": ["x"], "outputs": ["y"]}],
    )
    done = kgrun("execute", write(graph), "--device", "cpu", "--json")
    json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} in a report"))
    assert value(done, "y") == [number, number]


def test_json_01_a_division_by_zero_time_is_null(kgrun: Any, write: Any) -> None:
    done = kgrun("execute", write(relu()), "--device", "cpu", "--dim", "n=0", "--json")
    json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} in a report"))
    assert done.code == 0


@pytest.mark.parametrize(
    "text",
    [
        '{"kgrun": 1, "nodes": [], "nodes": []}', '{"kgrun": 1, "tensors": {"x": {}, "x": {}}}',
        '{"kgrun": 1,\n "nodes": [{"name": "a", "op": "Relu", "attributes": {"k": 1, "\\u006b": 2}}]}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["g.json", "g.yaml"])
def test_json_03_duplicate_keys_are_named_with_both_places(kgrun: Any, write: Any, text: str, name: str) -> None:
    done = kgrun("validate", write(text, name), "--json")
    assert done.code == 3
    assert done.json()["error"]["code"] == "KG306"
    assert done.error.count("line ") >= 2 or "first" in done.error


def bomb(levels: int) -> str:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (bomb(9), "g.yaml"), ("[" * 100_000, "g.yaml"), ("[" * 100_000, "g.json"), ('{"a":' * 100_000, "g.json"),
        ("- " * 100_000, "g.yaml"), ("a: &a [*a]\n", "g.yaml"), ('"' + "(" * 100_000 + '"', "g.json"),
    ],
    ids=["aliases", "yaml depth", "json depth", "json keys", "yaml dashes", "itself", "text"],
)  # fmt: skip
def test_yaml_06_bombs_are_refused_in_little_memory(write: Any, text: str, name: str) -> None:
    script = (
        "import resource, sys; from kgrun.cli.entry import main;"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 29, 1 << 29)); resource.setrlimit(resource.RLIMIT_CPU, (5, 5));"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", script, "validate", str(write(text, name)), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["code"] in ("KG307", "KG309", "KG305", "KG317")


@pytest.mark.parametrize(("text", "limit"), [(bomb(9), "aliases"), ("[" * 100_000, "100 levels")])
def test_yaml_06_the_limit_is_named(kgrun: Any, write: Any, text: str, limit: str) -> None:
    done = kgrun("validate", write(text, "g.yaml"), "--json")
    assert done.json()["error"]["code"] == "KG307"
    assert any(word in done.error for word in limit.split())


def test_yaml_06_five_thousand_honest_aliases_are_accepted(kgrun: Any, write: Any) -> None:
    rows = "".join(f"  t{i}: *one\n" for i in range(5_000))
    text = f"kgrun: 1\ntensors:\n  x: &one {{role: input, dtype: float32, shape: [8], init: {{fill: 0}}}}\n{rows}{NODE}"
    assert kgrun("validate", write(text, "g.yaml"), "-q").code == 0


def halves(role: str = "input", dtype: str = "bfloat16", **data: Any) -> dict[str, Any]:
    return relu(
        dims={},
        tensors={"x": {"role": role, "dtype": dtype, "shape": [3], **data}},
        nodes=[{"name": "n", "op": "Identity", "inputs": ["x"], "outputs": ["y"]}],
    )


BITS = np.array([0x3DCD, 0x7FC1, 0x8001], np.uint16)  # 0.1, a NaN with a payload, a subnormal


def test_fmt_01_raw_halves_of_numpy_files_are_taken_bit_by_bit(kgrun: Any, write: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", BITS.view("V2"))
    for graph, more in ((halves(data="x.npy"), []), (halves(), ["--input", f"x={tmp_path / 'x.npy'}"])):
        out = tmp_path / "out"
        assert kgrun("execute", write(graph), "--device", "cpu", "--output-dir", out, *more).code == 0
        assert np.array_equal(np.load(out / "y.npy").view(np.uint16), BITS)


def test_fmt_01_bf16_of_safetensors_is_taken_bit_by_bit(kgrun: Any, write: Any, tmp_path: Path) -> None:
    import ml_dtypes
    from safetensors.numpy import save_file

    save_file({"w": BITS.view(ml_dtypes.bfloat16)}, tmp_path / "w.safetensors")
    out = tmp_path / "out"
    graph = write(halves("parameter", data="w.safetensors#w"))
    assert kgrun("execute", graph, "--device", "cpu", "--output-dir", out).code == 0
    assert np.array_equal(np.load(out / "y.npy").view(np.uint16), BITS)


@pytest.mark.parametrize(
    ("raw", "dtype"), [("V2", "float32"), ("V2", "float8_e5m2"), ("V1", "bfloat16"), ("V4", "float32")]
)
def test_fmt_01_raw_bytes_of_another_width_are_refused(
    kgrun: Any, write: Any, tmp_path: Path, raw: str, dtype: str
) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, np.dtype(f"u{raw[1]}")).view(raw))
    done = kgrun("execute", write(halves(dtype=dtype, data="x.npy")), "--device", "cpu", "--json")
    assert done.code == 3
    assert done.json()["error"]["code"] == "KG375"
    assert raw in done.error


def test_fmt_01_raw_bytes_of_the_wrong_width_tell_both_widths(kgrun: Any, write: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", BITS.view("V2"))
    done = kgrun("execute", write(halves(dtype="float32", data="x.npy")), "--device", "cpu", "--json")
    assert "2" in done.error
    assert "4" in done.error or "float32" in done.error


@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("kernel.cubin", b"\x7fELF\x02\x01\x01" + bytes(57), "ELF"), ("graph.npz", b"PK\x03\x04" + bytes(60), "npz"),
        ("x.npy", b"\x93NUMPY\x01\x00" + bytes(60), "npy"), ("graph.json", b"\x7fELF\x02\x01\x01" + bytes(57), "ELF"),
        ("graph.yaml", b"PK\x03\x04" + bytes(60), "zip"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["execute", "plan-memory", "validate"])
def test_tvm_02_a_file_of_another_kind_is_named(
    kgrun: Any, tmp_path: Path, name: str, data: bytes, word: str, command: str
) -> None:
    (tmp_path / name).write_bytes(data)
    done = kgrun(command, tmp_path / name, "--json")
    assert done.code == 3
    assert done.json()["error"]["code"] == "KG302"
    assert word.lower() in done.error.lower()
    assert ".json" in done.error


@pytest.mark.parametrize(
    ("name", "text", "word"), [("k.cu", "__global__ void k() {}", "CUDA"), ("k.ptx", ".version 8.0\n", "PTX")]
)
def test_tvm_02_kernel_code_is_named_too(kgrun: Any, tmp_path: Path, name: str, text: str, word: str) -> None:
    (tmp_path / name).write_text(text)
    done = kgrun("execute", tmp_path / name, "--json")
    assert done.code == 3
    assert word in done.error


def test_the_peer_reads_these_scalars_otherwise() -> None:
    """What makes the cases above cases: YAML 1.1 as PyYAML has it."""
    assert yaml.safe_load("1e-5") == "1e-5"
    assert yaml.safe_load("017") == 15
    assert yaml.safe_load("12:30:45") == 45045
