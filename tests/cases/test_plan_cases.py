"""Plans: in-place beside other readers, outputs, missing data, determinism, sizes, limits, alignment."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.conftest import IN, ON_EACH_DEVICE, op, plan, relu, together, value
from tests.graphs.random_graphs import random_graph

# plan-02


@pytest.mark.parametrize("reader_first", [False, True])
def test_plan_02_an_automatic_in_place_spares_what_others_read(kgrun: Any, write: Any, reader_first: bool) -> None:
    readers = [op("b", "Relu", "t", "u"), op("c", "Exp", "t", "v")]
    graph = relu(
        nodes=[op("a", "Neg", "x", "t"), *(readers[::-1] if reader_first else readers), op("d", "Add", "uv", "y")]
    )
    done = kgrun("plan-memory", write(graph), "--target", "cpu", "--json")
    rows = plan(done)
    first = "c" if reader_first else "b"
    (decision,) = (row for row in done.json()["inplace"] if row["node"] == first)
    assert not decision["granted"]
    assert "t is read" in decision["reason"]
    out = {"b": "u", "c": "v"}[first]
    assert not together(rows["t"], rows[out])


def test_plan_02_the_callers_input_is_never_overwritten(kgrun: Any, write: Any, tmp_path: Path) -> None:
    x = np.array([-1, 2, -3, 4], np.float32)
    np.save(tmp_path / "x.npy", x)
    graph = relu(nodes=[op("a", "Relu", "x", "t"), op("b", "Sub", ["t", "x"], "y")])
    words = [
        "execute",
        write(graph),
        "--device",
        "cpu",
        "--json",
        "--iterations",
        "3",
        "--input",
        f"x={tmp_path / 'x.npy'}",
    ]
    done = kgrun(*words)
    assert value(done, "y") == [1, 0, 3, 0]
    assert all(
        not row["granted"] and "input x" in row["reason"] for row in done.json()["inplace"] if row["input"] == "x"
    )
    assert np.array_equal(np.load(tmp_path / "x.npy"), x)


def test_plan_02_the_callers_array_is_never_overwritten() -> None:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime import Session

    x = np.array([-1, 2, -3, 4], np.float32)
    with Session(KernelGraph.model_validate(relu(dims={"n": 4})), device="cpu") as session:
        report = session.run({"x": x}, iterations=2)
    assert report.outputs["y"].tolist() == [1, 0, 3, 0]
    assert x.tolist() == [-1, 2, -3, 4]


@pytest.mark.parametrize(
    ("nodes", "code", "words"),
    [
        ([op("a", "Relu", "x", "y", inplace={"y": "x"})], "KG354", "overwrite input 'x'"),
        (
            [op("a", "Neg", "x", "t"), op("b", "Relu", "t", "u", inplace={"u": "t"}), op("c", "Add", "tu", "y")],
            "KG345", "'c' reads it",
        ),
    ],
    ids=["input", "later reader"],
)  # fmt: skip
def test_plan_02_an_explicit_in_place_that_would_destroy_is_refused(
    kgrun: Any, write: Any, nodes: Any, code: str, words: str
) -> None:
    done = kgrun("execute", write(relu(nodes=nodes)), "--device", "cpu", "--json")
    assert (done.code, done.json()["error"]["code"]) == (3, code)
    assert words in done.error


# plan-04: tensors that are wanted although the run could do without them


@pytest.mark.parametrize("wanted", ["t1", "t2", "t3", "t4"])
def test_plan_04_a_middle_tensor_named_as_output_keeps_its_bytes(
    kgrun: Any, write: Any, wanted: str, tmp_path: Path
) -> None:
    chain = [op(f"s{i}", "Neg" if i % 2 else "Exp", [f"t{i}" if i else "x"], f"t{i + 1}") for i in range(6)]
    graph = write(relu(nodes=chain, outputs=["t6", wanted]))
    runs = [
        kgrun("execute", graph, "--device", "cpu", "--json", "--memory", mode).json() for mode in ("planned", "none")
    ]
    digests = [{row["name"]: row["sha256"] for row in run["outputs"]} for run in runs]
    assert digests[0] == digests[1]
    assert set(digests[0]) == {"t6", wanted}


# plan-06


@pytest.mark.parametrize("spec", [{}, {"role": "intermediate"}], ids=["no role", "intermediate"])
@pytest.mark.parametrize("command", ["validate", "execute"])
def test_plan_06_what_is_read_but_never_written_is_refused(kgrun: Any, write: Any, spec: Any, command: str) -> None:
    graph = relu(tensors={"x": IN, "w": {"dtype": "float32", "shape": ["n"], **spec}})
    graph["nodes"] = [op("k0", "Add", "xw", "y")]
    done = kgrun(command, write(graph), "--json")
    assert done.code == 3
    assert done.json()["error"]["code"] == "KG350"
    for word in ("'w'", "'k0'", "nothing writes it", "data", "init", "input"):
        assert word in done.error


@pytest.mark.parametrize("role", ["input", "parameter"])
def test_plan_06_an_input_without_data_is_refused_before_the_run(kgrun: Any, write: Any, role: str) -> None:
    graph = relu(tensors={"x": {"role": role, "dtype": "float32", "shape": ["n"]}})
    done = kgrun("execute", write(graph), "--device", "cpu", "--json")
    assert done.code == 2
    assert "'x' has no data" in done.error
    assert "--input x=" in done.error


# plan-08


def lasting(document: Any) -> Any:
    return (
        {key: value for key, value in document.items() if key != "plan_ns"} if isinstance(document, dict) else document
    )


def test_plan_08_plans_do_not_depend_on_the_hash_seed(process: Any, write: Any) -> None:
    path = write(random_graph(random.Random(3), 40))
    texts = set()
    for seed in range(4):
        done = process("plan-memory", path, "--json", env={"PYTHONHASHSEED": str(seed)})
        texts.add(json.dumps(json.loads(done.out, object_hook=lasting)))
    assert len(texts) == 1


@pytest.mark.parametrize("seed", range(6))
def test_plan_08_the_peak_does_not_depend_on_the_order_of_declarations(kgrun: Any, write: Any, seed: int) -> None:
    graph = random_graph(random.Random(seed), 25)
    peaks = set()
    for number in range(5):
        names = sorted(graph["tensors"])
        random.Random(number).shuffle(names)
        mixed = graph | {"tensors": {name: graph["tensors"][name] for name in names}}
        memory = kgrun("plan-memory", write(mixed), "--json").json()["memory"]
        peaks.add((memory["peak_bytes"], memory["static_bytes"], memory["lower_bound_bytes"]))
    assert len(peaks) == 1


@pytest.mark.parametrize("sizes", [(1024, 2048), (2048, 1024), (1000, 1001)])
def test_plan_08_another_shape_gets_another_plan(kgrun: Any, write: Any, sizes: Any) -> None:
    path = write(relu())
    for n in (*sizes, sizes[0]):
        rows = plan(kgrun("plan-memory", path, "--dim", f"n={n}", "--json"))
        assert rows["t"]["nbytes"] == 4 * n


# plan-10


@pytest.mark.parametrize(
    ("shape", "dtype", "nbytes"),
    [
        ([65_536, 65_536], "float32", 17_179_869_184), ([2**31], "uint8", 2**31), ([2**31 - 1], "uint8", 2**31 - 1),
        ([2**20, 2**20], "float64", 2**43), ([3, 2**31 + 1], "float16", 6 * (2**31 + 1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_plan_10_sizes_beyond_32_bits_are_exact(
    kgrun: Any, write: Any, shape: Any, dtype: str, nbytes: int, target: str
) -> None:
    x = {"role": "input", "dtype": dtype, "shape": shape, "init": {"fill": 0}}
    nodes = [op("a", "Identity" if dtype == "uint8" else "Neg", "x", "y")]
    rows = plan(kgrun("plan-memory", write(relu(tensors={"x": x}, nodes=nodes)), "--target", target, "--json"))
    assert rows["x"]["nbytes"] == nbytes
    assert isinstance(rows["x"]["nbytes"], int)


def test_plan_10_dimensions_may_be_numpy_integers() -> None:
    import warnings

    from kgrun.graphs.bind import bind
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.lower import lower
    from kgrun.runtime.memory.plan import plan_memory

    graph = relu(tensors={"x": IN | {"shape": ["n", "n"]}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound = bind(KernelGraph.model_validate(graph), dims={"n": np.int32(65_536)})  # type: ignore[dict-item]
        made = plan_memory(lower(bound, "cpu"))
    assert bound.tensors["x"].nbytes == 17_179_869_184
    assert made.static_bytes == 2 * 17_179_869_184


# ctx-05


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_ctx_05_every_tensor_and_workspace_is_aligned(kgrun: Any, write: Any, target: str) -> None:
    sizes = {"a": 1, "b": 3, "c": 17, "d": 255, "e": 513, "v": 64}
    tensors = {
        name: {"role": "input", "dtype": "uint8", "shape": [size], "init": {"fill": 0}} for name, size in sizes.items()
    }
    nodes = [op(f"n_{name}", "Equal", [name, name], f"{name}2", workspace=[7]) for name in sizes]
    nodes += [op(f"m_{name}", "Not", [f"{name}2"], f"{name}3") for name in sizes]
    graph = relu(dims={}, tensors=tensors, nodes=nodes, outputs=[f"{name}3" for name in sizes])
    for mode in ("planned", "none"):
        rows = plan(kgrun("plan-memory", write(graph), "--target", target, "--memory", mode, "--json"))
        assert len(rows) >= 3 * len(sizes)
        assert all(row["offset"] % 256 == 0 for row in rows.values())


@pytest.mark.parametrize("alignment", ["3", "0", "-256", "48", "x"])
def test_ctx_05_an_alignment_that_is_no_power_of_two_is_never_taken_for_one(
    kgrun: Any, tmp_path: Path, alignment: str
) -> None:
    path = tmp_path / "problem.csv"
    path.write_text(f"id,lower,upper,size,alignment\na,0,2,5,{alignment}\nb,0,2,7,{alignment}\nc,1,3,9,{alignment}\n")
    done = kgrun("plan-memory", path, "--json")
    if done.code == 0:  # any positive number is an alignment in this format: it must then be kept
        assert all(row["offset"] % int(alignment) == 0 for row in done.json()["tensors"])
    else:
        assert (done.code, done.json()["error"]["code"]) == (3, "KG390")
    assert (done.code == 0) == (alignment in ("3", "48"))


@ON_EACH_DEVICE
def test_ctx_05_float4_after_odd_tensors_runs(kgrun: Any, write: Any, device: str) -> None:
    source = """extern "C" __global__ void k(const char* a, const char* b, const float4* v, float4* y) {
      float4 t = v[0];
      t.x += a[0] + b[2];
      y[0] = t;
    }"""
    tensors = {
        "a": {"role": "input", "dtype": "int8", "shape": [1], "init": {"fill": 1}},
        "b": {"role": "input", "dtype": "int8", "shape": [3], "init": {"fill": 2}},
        "v": {"role": "input", "dtype": "float32", "shape": [4], "init": {"arange": [0, 1]}},
        "y": {"dtype": "float32", "shape": [4]},
    }
    node = {"name": "k0", "kernel": "k", "inputs": ["a", "b", "v"], "outputs": ["y"], "grid": [1], "block": [1]}
    graph = {
        "kgrun": 1,
        "kernels": {"k": {"source": source, "entry": "k"}},
        "tensors": tensors,
        "nodes": [node],
        "outputs": ["y"],
    }
    assert value(kgrun("execute", write(graph), "--device", device, "--json"), "y") == [3, 1, 2, 3]


# off-02: what is constant is never written back; nothing that a step touches is anywhere but on the device


@pytest.mark.parametrize("source", ["constant", "parameter"])
def test_off_02_steps_never_write_constants(write: Any, source: str) -> None:
    from kgrun.graphs.bind import bind
    from kgrun.graphs.load import load_graph
    from kgrun.runtime.lower import lower

    extra = {"value": [1.0] * 8} if source == "constant" else {"init": {"fill": 1}}
    graph = relu(tensors={"x": IN, "c": {"role": source, "dtype": "float32", "shape": ["n"], **extra}})
    graph["nodes"] = [op("a", "Add", "xc", "t"), op("b", "Mul", "tc", "u"), op("d", "Sub", "uc", "y")]
    for target in ("cpu", "cuda"):
        made = lower(bind(load_graph(write(graph))), target)
        written = {index for step in made.steps for index in step.writes}
        assert made.slots["c"].buffer not in written
