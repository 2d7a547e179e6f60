"""load_graph: files, standard input, other kinds of file, places, data paths."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.load import load_graph, parse_graph, source

YAML = b"""\
kgrun: 1
tensors:
  x: {role: input, dtype: float32, shape: [4]}
nodes:
- {name: r, op: Relu, inputs: [x], outputs: [y]}
"""
JSON = b'{"kgrun": 1, "name": "j", "tensors": {"x": {"dtype": "float32"}}}'


def fault(path: Path | str, **options: bool) -> GraphError:
    with pytest.raises(GraphError) as caught:
        load_graph(path, **options)  # type: ignore[arg-type]
    assert caught.value.exit == 3
    return caught.value


def test_a_file_knows_its_name_folder_and_places(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_bytes(YAML)
    graph = load_graph(path)
    assert graph.file == str(path)
    assert graph.folder == tmp_path
    assert not graph.allows_external_data
    assert str(graph.place("nodes", 0, "op")) == f"{path}: nodes[0].op (line 5, column 17)"
    assert load_graph(str(path), allow_external_data=True).allows_external_data


@pytest.mark.parametrize(("name", "text"), [("g.JSON", JSON), ("g.yml", YAML), ("g.yaml", JSON)])
def test_the_ending_tells_the_format(tmp_path: Path, name: str, text: bytes) -> None:
    (tmp_path / name).write_bytes(text)
    assert "x" in load_graph(tmp_path / name).tensors


@pytest.mark.parametrize("text", [JSON, b"\n " + JSON, YAML, b"{kgrun: 1, tensors: {x: {}}}", b"\xef\xbb\xbf" + YAML])
def test_standard_input_is_sniffed(text: bytes) -> None:
    graph = load_graph("-", stdin=io.BytesIO(text))
    assert list(graph.tensors) == ["x"]
    assert graph.file == "<stdin>"
    assert graph.folder == Path()


def test_standard_input_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(GraphError, match="Input/output error") as caught:
        load_graph("-", stdin=Broken())
    assert caught.value.code == "KG301"
    monkeypatch.setattr(sys, "stdin", None)
    assert fault("-").message == "there is no standard input"


def test_a_graph_from_a_pipe_without_a_name(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, YAML)
    os.close(write)
    try:
        assert list(load_graph(f"/dev/fd/{read}").tensors) == ["x"]
    finally:
        os.close(read)


def test_errors_of_standard_input_have_places() -> None:
    with pytest.raises(GraphError) as caught:
        load_graph("-", stdin=io.BytesIO(b"kgrun: 1\nnodse: []\n"))
    assert str(caught.value.where) == "<stdin>: nodse (line 2, column 1)"


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("kernel.cubin", b"\x7fELF\x02\x01\x01", "ELF/cubin"),
        ("graph.json", b"\x7fELF\x02\x01\x01", "ELF/cubin"),
        ("graph.npz", b"PK\x03\x04\x14\0", "a zip archive (.npz)"),
        ("graph.yaml", b"PK\x03\x04\x14\0", "a zip archive (.npz)"),
        ("x.npy", b"\x93NUMPY\x01\0", "a numpy array (.npy)"),
        ("m.h5", b"\x89HDF\r\n\x1a\n", "HDF5"),
        ("m.onnx", b"\x08\x08\x12\x07pytorch", "an ONNX model"),
        ("m.safetensors", b'\x40\0\0\0\0\0\0\0{"w":{"dtype"', "a safetensors file"),
        ("m.pt", b"\x80\x02\x8a", "a Python pickle"),
        ("k.cu", b'extern "C" __global__ void k(float* x) {}', "CUDA C source"),
        ("k.json", b"#include <cuda.h>\n__global__ void k() {}", "CUDA C source"),
        ("k.yaml", b"#include <cuda.h>\n__global__ void k() {}", "CUDA C source"),
        ("k.ptx", b"//\n// Generated\n.version 8.4\n.target sm_90", "PTX"),
        ("a.csv", b"id,lower,upper,size\n0,0,3,4\n", "a packing problem (.csv)"),
        ("a.gz", b"\x1f\x8b\x08", "a gzip file"),
        ("g.json", "{}".encode("utf-16"), "UTF-16 text"),
        ("s.py", b"import pycuda.autoinit\n", "Python source"),
    ],
)
def test_tvm_02_other_kinds_of_file_are_named(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(data)
    error = fault(tmp_path / name)
    assert error.code == "KG302"
    assert error.message.startswith(f"looks like {kind}")
    assert error.message.endswith("expected a graph (.json/.yaml)")


def test_tvm_02_a_graph_with_inline_cuda_source_is_a_graph() -> None:
    text = b"kgrun: 1\nkernels:\n  k:\n    entry: k\n    source: |\n      #include <x>\n      __global__ void k() {}\n"
    assert parse_graph(text, name="g.yaml", format="yaml").kernels["k"].inline
    with pytest.raises(GraphError) as caught:
        parse_graph(text + b"  oops\n", name="g.yaml", format="yaml")
    assert caught.value.code == "KG305"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b'{"nodes": [], "arg_nodes": [], "heads": []}', "TVM"),
        (b'{"launches": []}', "kgrun import"),
        (b"{}", "kgrun: 1"),
    ],
)
def test_tvm_02_foreign_json_is_named(text: bytes, part: str) -> None:
    with pytest.raises(GraphError) as caught:
        parse_graph(text, name="g.json", format="json")
    assert part in (caught.value.help or "")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_bytes(YAML)
    assert fault(tmp_path).message.startswith("is a folder")
    assert "graph.yaml" in (fault(tmp_path).help or "")
    missing = fault(tmp_path / "graf.yaml")
    assert missing.code == "KG301"
    assert missing.help == "did you mean 'graph.yaml'?"
    assert fault(tmp_path / "no" / "x.json").message == "no such file"
    assert fault("a\0b.json").code == "KG301"
    assert fault("x" * 5000 + ".json").code == "KG301"
    (tmp_path / "notes.txt").write_bytes(b"hello")
    assert fault(tmp_path / "notes.txt").message == "its name ends in .txt, expected a graph (.json/.yaml)"
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    assert fault(tmp_path / "loop.json").code == "KG301"


@pytest.mark.parametrize("text", [b"", b" \n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_empty_files(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "g.json").write_bytes(text)
    assert fault(tmp_path / "g.json").code == "KG303"


@pytest.mark.parametrize("text", [b"# nothing\n", b"---\n", b"[1]", b"hello", b"3"])
def test_what_is_no_mapping(text: bytes) -> None:
    with pytest.raises(GraphError) as caught:
        parse_graph(text, name="g.yaml", format="yaml")
    assert caught.value.code == "KG317"


def test_bytes_that_are_not_utf8_have_a_place() -> None:
    with pytest.raises(GraphError) as caught:
        parse_graph("kgrun: 1\nname: caf\u00e9\n".encode("latin-1"), name="g.yaml")
    assert caught.value.code == "KG304"
    assert str(caught.value.where) == "g.yaml (line 2, column 10)"
    assert "0xE9" in caught.value.message


def test_files_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_BYTES", 1 << 20)
    path = tmp_path / "g.json"
    with path.open("wb") as file:
        file.truncate((1 << 20) + 1)
    assert fault(path).message == "the file is larger than 1 MiB"
    with pytest.raises(GraphError) as caught:
        load_graph("-", stdin=io.BytesIO(b" " * ((1 << 20) + 1)))
    assert caught.value.code == "KG307"


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("../w.npy", "KG371"),
        ("a/../../w.npy", "KG371"),
        ("/etc/w.npy", "KG371"),
        ("link/w.npy", "KG371"),
        ("w.bin", "KG370"),
        ("w.npz", "KG370"),
        ("w.npy#x", "KG370"),
    ],
)
def test_data_paths_are_checked_when_loading(tmp_path: Path, reference: str, code: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    path = folder / "g.yaml"
    path.write_text(f"kgrun: 1\ntensors:\n  w: {{role: parameter, data: '{reference}'}}\n")
    error = fault(path)
    assert error.code == code
    assert error.where is not None
    assert (error.where.path, error.where.line) == (("tensors", "w", "data"), 3)
    if code == "KG371":
        assert "--allow-external-data" in (error.help or "")
        assert load_graph(path, allow_external_data=True).tensors["w"].data == reference


def test_data_files_need_not_exist_to_load(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text("kgrun: 1\ntensors:\n  w: {role: parameter, data: 'sub/w.safetensors#a/b#c'}\n")
    assert load_graph(path).tensors["w"].data == "sub/w.safetensors#a/b#c"


def test_the_garbage_collector_is_left_as_it_was() -> None:
    assert gc.isenabled()
    parse_graph(YAML, name="g.yaml")
    assert gc.isenabled()
    with pytest.raises(GraphError):
        parse_graph(b"[", name="g.json")
    assert gc.isenabled()


def test_importing_the_package_imports_nothing() -> None:
    code = (
        "import sys, kgrun.graphs as g, kgrun.graphs.data\n"
        "heavy = {'numpy', 'pydantic', 'yaml', 'ml_dtypes'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "g.load_graph; assert 'pydantic' in sys.modules and 'numpy' not in sys.modules\n"
        "from kgrun.graphs.data import constant_value; assert 'numpy' not in sys.modules\n"
        "assert set(g.__all__) <= set(dir(g)) and all(getattr(g, n) for n in g.__all__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_folder_is_refused_and_its_graphs_are_named_but_no_schema(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.json", "kgrun.schema.json", "x.npy"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(GraphError) as caught:
        load_graph(tmp_path)
    assert caught.value.code == "KG301"
    assert caught.value.help == "graphs in it: a.json, b.yaml"
