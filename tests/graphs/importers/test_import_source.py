"""Imports: launch lists to graphs that load, bind and say what the list says; all files or none."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.data import load_array
from kgrun.graphs.errors import GraphError, KgrunError, UsageError
from kgrun.graphs.importers import KINDS, import_source
from kgrun.graphs.importers import publish as publishing
from kgrun.graphs.load import load_graph

BERT = Path(__file__).parents[2] / "data" / "launch_lists" / "bert_tiny"
LIST: dict[str, Any] = {
    "inputs": [{"name": "x", "dtype": "float32", "shape": [4]}],
    "constants": [{"name": "c", "dtype": "float32", "shape": []}],
    "buffers": [{"name": "t", "dtype": "float32", "shape": [4]}, {"name": "y", "dtype": "float32", "shape": [4]}],
    "outputs": ["y"],
    "launches": [
        {"kernel": "scale", "args": ["t", "c", "x"], "reads": ["c", "x"], "writes": ["t"], "grid": [1], "block": [4]},
        {"kernel": "twice", "args": ["t", "y"], "reads": ["t"], "writes": ["y"], "grid": [1, 1, 1],
         "block": [4, 1, 1], "dynamic_smem": 64, "prim_func": "double"},
    ],
}  # fmt: skip
CODE = """
extern "C" __global__ void scale(float* out, float* factor, float* in) { out[threadIdx.x] = *factor * in[threadIdx.x]; }
extern "C" __global__ void twice(float* in, float* out) { out[threadIdx.x] = 2 * in[threadIdx.x]; }
"""
Write = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Write:
    """Write a launch list of two kernels, members of graph.json replaced."""

    def write(code: str = CODE, **changes: Any) -> Path:
        path = tmp_path / "source"
        path.mkdir(exist_ok=True)
        (path / "graph.json").write_text(json.dumps(LIST | changes))
        (path / "kernels.cu").write_text(code)
        np.savez(path / "constants.npz", c=np.float32(3))
        np.savez(path / "inputs.npz", x=np.arange(4, dtype=np.float32))
        return path

    return write


def test_a_launch_list_becomes_a_graph(folder: Write, tmp_path: Path) -> None:
    made = import_source(folder(), tmp_path / "g.json")
    assert [path.name for path in made.files] == ["g.json", "g.cu", "g.inputs.npz", "g.safetensors"]
    assert (made.kind, made.name, made.kernels, made.nodes, made.tensors) == ("launch list", "source", 2, 2, 4)
    graph = load_graph(tmp_path / "g.json")
    assert [node.name for node in graph.nodes] == ["0_scale", "1_double"]
    bound = bind(graph)
    assert [row.launch.shared for row in bound.nodes if row.launch] == [0, 64]
    assert graph.nodes[0].inplace == {}
    assert (tmp_path / "g.cu").read_text() == CODE
    assert load_array(str(graph.tensors["c"].data), folder=tmp_path, dtype="float32", shape=()) == 3
    assert load_array(str(graph.tensors["x"].data), folder=tmp_path).tolist() == [0, 1, 2, 3]


def test_importing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        import_source(BERT, tmp_path / name / "bert.json")
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["bert.cu", "bert.expected.npz", "bert.inputs.npz", "bert.json", "bert.safetensors"]
    assert files == sorted(path.name for path in (tmp_path / "b").iterdir())
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_existing_files_stay_unless_forced(folder: Write, tmp_path: Path) -> None:
    source = folder()
    (tmp_path / "g.cu").write_text("mine")
    with pytest.raises(UsageError, match=r"exists already: .*g\.cu") as failure:
        import_source(source, tmp_path / "g.json")
    assert failure.value.code == "KG270"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.cu", "source"]
    assert (tmp_path / "g.cu").read_text() == "mine"
    import_source(source, tmp_path / "g.json", force=True)
    assert (tmp_path / "g.cu").read_text() == CODE


def test_the_source_is_never_replaced(folder: Write) -> None:
    source = folder()
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    for name in ("graph.json", "kernels.json"):
        with pytest.raises(UsageError, match="is part of the source"):
            import_source(source, source / name, force=True)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    assert len(import_source(source, source / "made.json").files) == 4


def test_a_disk_that_fails_midway_leaves_what_was_there(
    folder: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder()
    import_source(source, tmp_path / "g.json")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    folder(outputs=["t", "y"])

    class Failing:
        calls = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def replace(self, source: Path, target: Path) -> None:
            self.calls += 1
            if self.calls == 5:
                raise OSError(28, "No space left on device")
            os.replace(source, target)

    monkeypatch.setattr(publishing, "os", Failing())
    with pytest.raises(UsageError, match="No space left on device"):
        import_source(source, tmp_path / "g.json", force=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["source"]


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"outputs": ["z"]}, "KG343", "makes no valid graph"),
        ({"buffers": LIST["buffers"] + LIST["inputs"]}, "KG380", "'x' is listed twice"),
        ({"launches": [LIST["launches"][0] | {"args": ["tt", "c", "x"]}]}, "KG380", "names unknown tensor 'tt'"),
        ({"launches": [LIST["launches"][0] | {"kernel": "scales"}]}, "KG380", "no kernel 'scales' in kernels.cu"),
        ({"launches": [LIST["launches"][0] | {"grid": [0]}]}, "KG380", "not a launch list"),
        ({"launches": [LIST["launches"][0] | {"block": [1025]}, LIST["launches"][1]]}, "KG360", "makes no valid graph"),
        ({"nodes": []}, "KG380", "not a launch list"),
        ({"buffers": [LIST["buffers"][0] | {"shape": [2**62]}, LIST["buffers"][1]]}, "KG400", "makes no valid graph"),
        ({"constants": [{"name": "c", "dtype": "float32", "shape": [2]}]}, "KG376", "shape"),
        ({"constants": [{"name": "c", "dtype": "int32", "shape": []}]}, "KG375", "int32"),
        ({"constants": [{"name": "k", "dtype": "float32", "shape": []}], "launches": []}, "KG374", "no array 'k'"),
        ({"inputs": [{"name": "z", "dtype": "float32", "shape": [4]}], "launches": []}, "KG380", "belongs to nothing"),
    ],
)
def test_a_wrong_list_is_refused_and_leaves_nothing(
    folder: Write, tmp_path: Path, changes: dict[str, Any], code: str, message: str
) -> None:
    with pytest.raises(KgrunError, match=message) as failure:
        import_source(folder(**changes), tmp_path / "g.json")
    assert failure.value.code == code
    assert ".kgrun-import" not in failure.value.to_text()
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("file", ["graph.json", "constants.npz", "inputs.npz"])
@pytest.mark.parametrize("damage", ["cut", "empty", "noise"])
def test_damaged_files_are_refused(folder: Write, tmp_path: Path, file: str, damage: str) -> None:
    source = folder()
    whole = (source / file).read_bytes()
    (source / file).write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "noise": bytes(range(256)) * 4}[damage])
    with pytest.raises(GraphError) as failure:
        import_source(source, tmp_path / "g.json")
    assert failure.value.code.startswith("KG3")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_the_place_of_a_fault_has_its_line(folder: Write, tmp_path: Path) -> None:
    source = folder()
    text = json.dumps(LIST, indent=1).replace('"twice"', "7")
    (source / "graph.json").write_text(text)
    with pytest.raises(GraphError, match="not a launch list") as failure:
        import_source(source, tmp_path / "g.json")
    line = next(at for at, row in enumerate(text.splitlines(), start=1) if "7," in row)
    assert str(failure.value.where) == f"{source / 'graph.json'}: launches[1].kernel (line {line}, column 14)"


@pytest.mark.parametrize("name", ["a b.json", "a#b.json", "a{b;.json", "é.json", ".hidden.json"])
def test_any_name_of_the_graph_works(folder: Write, tmp_path: Path, name: str) -> None:
    import_source(folder(), tmp_path / name)
    graph = load_graph(tmp_path / name)
    assert not graph.kernels["scale"].inline
    bind(graph)
    assert load_array(str(graph.tensors["c"].data), folder=tmp_path) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_names_that_are_no_utf8_work(folder: Write, tmp_path: Path) -> None:
    source = folder().rename(tmp_path / os.fsdecode(b"in\xff"))
    made = import_source(source, tmp_path / os.fsdecode(b"g\xff.json"))
    assert [path.name for path in made.files[1:]] == ["g%FF.cu", "g%FF.inputs.npz", "g%FF.safetensors"]
    graph = load_graph(made.files[0])
    assert graph.name == r"in\xff"
    bind(graph)


@pytest.mark.parametrize(
    ("output", "message"),
    [("g.yaml", "no .json file"), ("no/g.json", "cannot write to"), ("taken.json", "is a folder")],
)
def test_outputs_that_cannot_be(folder: Write, tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "taken.json").mkdir()
    with pytest.raises(UsageError, match=message):
        import_source(folder(), tmp_path / output, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "taken.json"]


def test_what_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(KgrunError, match="does not exist") as failure:
        import_source(tmp_path / "none", tmp_path / "g.json")
    assert failure.value.help is not None
    assert all(kind.shape in failure.value.help for kind in KINDS)
    with pytest.raises(GraphError, match="is nothing that kgrun can import"):
        import_source(tmp_path, tmp_path / "g.json")


def test_the_compilers_graph_reaches_its_lower_bound(tmp_path: Path) -> None:
    """The README beside it: 164,096 bytes live at once, before alignment."""
    from kgrun.runtime.lower import lower
    from kgrun.runtime.memory.plan import plan_memory

    made = import_source(BERT, tmp_path / "bert.json")
    assert (made.kernels, made.nodes) == (17, 45)
    plan = plan_memory(lower(bind(load_graph(tmp_path / "bert.json")), target="cuda"))
    assert plan.dynamic_bytes == plan.lower_bound_bytes
    dynamic = [place for place in plan.placements if place.space == "dynamic"]
    live = max(sum(p.nbytes for p in dynamic if p.first_step <= step <= p.last_step) for step in range(45))
    assert live == 164_096
    aligned = max(sum(p.aligned for p in dynamic if p.first_step <= step <= p.last_step) for step in range(45))
    assert plan.dynamic_bytes == aligned == 164_352


def test_no_two_operands_of_a_launch_share_bytes(tmp_path: Path) -> None:
    from kgrun.runtime.lower import lower
    from kgrun.runtime.memory.plan import plan_memory

    import_source(BERT, tmp_path / "bert.json")
    bound = bind(load_graph(tmp_path / "bert.json"))
    program = lower(bound, target="cuda")
    places = {place.buffer: place for place in plan_memory(program).placements}
    for node in bound.nodes:
        read = [places[program.slots[name].buffer] for name in node.inputs if name is not None]
        for name in node.outputs:
            assert name is not None
            written = places[program.slots[name].buffer]
            for place in read:
                apart = place.offset + place.nbytes <= written.offset or written.offset + written.nbytes <= place.offset
                assert place.space != written.space or apart


def test_importers_cost_nothing_until_used() -> None:
    import subprocess
    import sys

    code = "import sys, kgrun.graphs.importers; print('numpy' in sys.modules or 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_copies_of_the_source_do_not_matter(folder: Write, tmp_path: Path) -> None:
    """A folder without optional files gives a graph without them."""
    source = folder()
    (source / "inputs.npz").unlink()
    shutil.copy(source / "kernels.cu", source / "other.cu")
    made = import_source(source, tmp_path / "g.json")
    assert [path.name for path in made.files] == ["g.json", "g.cu", "g.safetensors"]
