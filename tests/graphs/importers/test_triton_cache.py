"""Triton caches to graphs: what the metadata, the IR, the PTX and the cubin say; executed on the CPU against numpy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError, KgrunError
from kgrun.graphs.importers import import_source
from kgrun.graphs.importers.ptx_entries import ptx_entries, ptx_target
from kgrun.graphs.importers.triton_ir import IrArgument, ir_arguments
from kgrun.graphs.load import load_graph
from kgrun.runtime.session import Session

PTX = Path(__file__).parents[2] / "runtime" / "compile" / "ptx" / "corpus" / "triton"
METADATA: dict[str, Any] = {
    "hash": "6e1f", "target": {"backend": "cuda", "arch": 80, "warp_size": 32}, "num_warps": 4, "num_ctas": 1,
    "num_stages": 3, "maxnreg": None, "cluster_dims": [1, 1, 1], "ptx_version": None, "enable_fp_fusion": True,
    "launch_cooperative_grid": False, "debug": False, "backend_name": "cuda", "shared": 0, "tmem_size": 0,
    "global_scratch_size": 0, "global_scratch_align": 1, "profile_scratch_size": 0, "profile_scratch_align": 1,
}  # fmt: skip
ADD_IR = """
#loc = loc("gen.py":6:0)
module {
  tt.func public @add(%x_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x_ptr"(#loc)),
      %y_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("y_ptr"(#loc)), %o_ptr: !tt.ptr<f32> loc("o_ptr"(#loc)),
      %n: i32 {tt.divisibility = 8 : i32} loc("n"(#loc))) attributes {noinline = false} {
    tt.return loc(#loc1)
  }
}
"""
HIST_IR = (
    "tt.func public @atomic_hist(%arg0: !tt.ptr<i32>, %arg1: !tt.ptr<i32>, %arg2: i32) attributes {noinline = false} {"
)


def put(folder: Path, name: str, ptx: str, ir: str = "", **changes: Any) -> Path:
    """A kernel's folder as Triton leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(METADATA | {"name": name} | changes))
    (folder / f"__grp__{name}.json").write_text(json.dumps({"child_paths": {f"{name}.ptx": "somewhere"}}))
    shutil.copyfile(PTX / ptx, folder / f"{name}.ptx")
    if ir:
        (folder / f"{name}.ttir").write_text(ir)
    return folder


def run(graph: Path, dims: dict[str, int], **inputs: np.ndarray[Any, Any]) -> dict[str, Any]:
    pytest.importorskip("llvmlite")
    pytest.importorskip("cuda.bindings")
    with Session(load_graph(graph), device="cpu", dims=dims, checks=("all",)) as session:
        report = session.run(inputs)
    assert report.findings == ()
    return dict(report.outputs)


def test_names_and_types_come_from_the_ir(tmp_path: Path) -> None:
    made = import_source(put(tmp_path / "cache", "add", "add.ptx", ADD_IR), tmp_path / "g.json")
    assert [path.name for path in made.files] == ["g.json", "g.add.ptx"]
    assert (made.kind, made.kernels, made.nodes, made.tensors) == ("Triton cache", 1, 1, 3)
    document = json.loads((tmp_path / "g.json").read_text())
    node = document["nodes"][0]
    assert node["args"] == ["add_x_ptr", "add_y_ptr", "add_o_ptr", {"int32": "add_n"}, None, None]
    assert (node["inputs"], node["outputs"], node["block"]) == (["add_x_ptr", "add_y_ptr"], ["add_o_ptr"], [128])
    assert {row["dtype"] for row in document["tensors"].values()} == {"float32"}
    x, y = (np.random.default_rng(seed).standard_normal(3000).astype(np.float32) for seed in (0, 1))
    sizes = dict.fromkeys(("add_x_ptr_size", "add_y_ptr_size", "add_o_ptr_size", "add_n"), 3000)
    outputs = run(tmp_path / "g.json", {"add_grid_x": 3, **sizes}, add_x_ptr=x, add_y_ptr=y)
    np.testing.assert_array_equal(outputs["add_o_ptr"], x + y)


def test_what_is_not_filled_in_is_refused_at_its_place(tmp_path: Path) -> None:
    import_source(put(tmp_path / "cache", "add", "add.ptx", ADD_IR), tmp_path / "g.json")
    for missing in ("add_grid_x", "add_n", "add_o_ptr_size"):
        dims = {"add_grid_x": 3, "add_x_ptr_size": 8, "add_y_ptr_size": 8, "add_o_ptr_size": 8, "add_n": 8}
        del dims[missing]
        with pytest.raises(KgrunError) as caught:
            Session(load_graph(tmp_path / "g.json"), device="cpu", dims=dims)
        assert (caught.value.code, caught.value.where and caught.value.where.path) == ("KG220", ("dims", missing))


def test_several_kernels_in_folders_of_hashes(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    put(cache / "AAAA", "softmax", "softmax.ptx", shared=16)
    put(cache / "BBBB", "atomic_hist", "hist.ptx", HIST_IR)
    put(cache / "CCCC", "add", "add.ptx")
    put(cache / "DDDD", "add", "add.ptx", num_stages=2)
    (cache / "EEEE").mkdir()
    (cache / "EEEE" / "__triton_launcher.so").write_bytes(b"\x7fELF")
    made = import_source(cache, tmp_path / "g.json")
    graph = load_graph(tmp_path / "g.json")
    assert (made.kernels, made.nodes) == (4, 4)
    assert [node.name for node in graph.nodes] == ["softmax", "atomic_hist", "add", "add_2"]
    assert json.loads((tmp_path / "g.json").read_text())["nodes"][0]["shared"] == 16


def test_memory_that_is_read_and_written_begins_with_zeros(tmp_path: Path) -> None:
    import_source(put(tmp_path / "cache", "atomic_hist", "hist.ptx", HIST_IR), tmp_path / "g.json")
    x = np.random.default_rng(0).integers(0, 16, 1500, dtype=np.int32)
    sizes = {"atomic_hist_arg0_size": 1500, "atomic_hist_arg1_size": 16, "atomic_hist_arg2": 1500}
    outputs = run(tmp_path / "g.json", {"atomic_hist_grid_x": 3, **sizes}, atomic_hist_arg0=x)
    np.testing.assert_array_equal(outputs["atomic_hist_arg1"], np.bincount(x, minlength=16))


def test_shared_memory_and_matrix_products(tmp_path: Path) -> None:
    ir = "tt.func public @matmul(%a: !tt.ptr<f16>, %b: !tt.ptr<f16>, %c: !tt.ptr<f32>, %m: i32, %n: i32, %k: i32) {"
    import_source(put(tmp_path / "cache", "matmul", "matmul_fp16.ptx", ir, shared=16384), tmp_path / "g.json")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((128, 96)).astype(np.float16), rng.standard_normal((96, 64)).astype(np.float16)
    dims = {"matmul_grid_x": 2, "matmul_m": 128, "matmul_n": 64, "matmul_k": 96}
    dims |= {"matmul_a_size": a.size, "matmul_b_size": b.size, "matmul_c_size": 128 * 64}
    outputs = run(tmp_path / "g.json", dims, matmul_a=a.reshape(-1), matmul_b=b.reshape(-1))
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(outputs["matmul_c"].reshape(128, 64), want, 1e-3, 2e-2)


def test_without_ir_types_are_the_width_of_accesses(tmp_path: Path) -> None:
    import_source(put(tmp_path / "cache", "add", "add.ptx"), tmp_path / "g.json")
    document = json.loads((tmp_path / "g.json").read_text())
    assert {row["dtype"] for row in document["tensors"].values()} == {"uint32"}
    assert all("does not say the type" in row["doc"] for row in document["tensors"].values())


def test_scratch_memory_is_a_workspace(tmp_path: Path) -> None:
    import_source(put(tmp_path / "cache", "add", "add.ptx", ADD_IR, global_scratch_size=256), tmp_path / "g.json")
    node = json.loads((tmp_path / "g.json").read_text())["nodes"][0]
    assert node["workspace"] == ["256 * add_grid_x * add_grid_y * add_grid_z"]
    assert node["args"][-2:] == [{"workspace": 0}, None]


def test_a_cubin_is_for_the_gpu_and_its_ptx_for_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings")
    from kgrun.runtime.compile.nvrtc import compile_cuda

    source = 'extern "C" __global__ void scale(float* x, float f) { x[threadIdx.x + blockIdx.x * 32] *= f; }'
    cache = tmp_path / "cache"
    cache.mkdir()
    plain = {key: value for key, value in METADATA.items() if "scratch" not in key}
    (cache / "scale.json").write_text(json.dumps(plain | {"name": "scale", "num_warps": 1}))
    (cache / "scale.cubin").write_bytes(compile_cuda(source, name="s.cu", arch="sm_80").image)
    import_source(cache, tmp_path / "cubin.json")
    document = json.loads((tmp_path / "cubin.json").read_text())
    assert document["kernels"]["scale"]["source"] == "cubin.scale.cubin"
    assert document["nodes"][0]["args"] == ["scale_arg0", {"int32": "scale_arg1"}]
    assert document["nodes"][0]["inplace"] == {"scale_arg0": "scale_arg0_before"}
    (cache / "scale.ptx").write_bytes(compile_cuda(source, name="s.cu", arch="sm_80", kind="ptx").image)
    import_source(cache, tmp_path / "both.json")
    kernel = json.loads((tmp_path / "both.json").read_text())["kernels"]["scale"]
    assert (kernel["source"], kernel["ptx"]) == ("both.scale.cubin", "both.scale.ptx")
    document = json.loads((tmp_path / "both.json").read_text())
    document["tensors"]["scale_arg0"]["dtype"] = document["tensors"]["scale_arg0_before"]["dtype"] = "float32"
    document["tensors"]["scale_arg0_before"]["init"] = {"fill": 2}
    (tmp_path / "both.json").write_text(json.dumps(document))
    outputs = run(tmp_path / "both.json", {"scale_grid_x": 2, "scale_arg0_size": 64, "scale_arg1": 3})
    np.testing.assert_array_equal(outputs["scale_arg0"], np.full(64, 6, np.float32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": {"backend": "hip", "arch": "gfx942", "warp_size": 64}}, "a kernel for hip"),
        ({"num_warps": "four"}, "'num_warps' is no count"),
        ({"name": "other"}, "no kernel 'other'"),
        ({"name": ""}, "'name' is no name"),
    ],
)
def test_damaged_metadata_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = put(tmp_path / "cache", "add", "add.ptx")
    (folder / "add.json").write_text(json.dumps(METADATA | {"name": "add"} | changes))
    with pytest.raises(GraphError, match=message) as caught:
        import_source(folder, tmp_path / "g.json")
    assert caught.value.code == "KG380"
    assert not (tmp_path / "g.json").exists()


def test_older_metadata_names_its_target_otherwise(tmp_path: Path) -> None:
    import_source(put(tmp_path / "cache", "add", "add.ptx", target=["cuda", 80]), tmp_path / "g.json")
    assert "for sm_80" in json.loads((tmp_path / "g.json").read_text())["kernels"]["add"]["doc"]


def test_a_tensor_descriptor_is_refused(tmp_path: Path) -> None:
    folder = put(tmp_path / "cache", "add", "add.ptx")
    text = (folder / "add.ptx").read_text()
    text = text.replace(".param .u32 add_param_3", ".param .align 64 .b8 add_param_3[128]")
    (folder / "add.ptx").write_text(text)
    with pytest.raises(GraphError, match="structure of 128 bytes"):
        import_source(folder, tmp_path / "g.json")


def test_arguments_of_the_ir() -> None:
    text = "tt.func public @k(%arg0: !tt.ptr<bf16, 1>, %f: f32, %d: !tt.tensordesc<tensor<64x64xf16>>, %1: i64) {"
    assert ir_arguments(text, "k") == (
        IrArgument("", True, "bfloat16"),
        IrArgument("f", False, "float32"),
        IrArgument("d", False, None),
        IrArgument("", False, "int64"),
    )
    assert ir_arguments(text, "other") is None


def test_accesses_are_followed_through_ptx() -> None:
    entry = ptx_entries((PTX / "add.ptx").read_text())["add"]
    uses = [(param.pointer, param.reads, param.writes) for param in entry.params]
    read, write, none = (True, True, False), (True, False, True), (True, False, False)
    assert uses == [read, read, write, (False, False, False), none, none]
    assert entry.params[2].element == 4
    assert ptx_target(".version 8.8\n.target sm_90a\n") == "sm_90a"
    assert ptx_entries("hello") == {}
