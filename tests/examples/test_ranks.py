"""Training and inference over ranks: the weights and outputs are those of one rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file

from tests.examples.test_example_files import DATA, EXAMPLES
from tests.examples.test_run import kgrun
from tests.runtime.collectives.test_mpi import needs_mpi

pytestmark = needs_mpi


def example(name: str) -> dict[str, Any]:
    """A graph of the examples, with its data found from anywhere."""
    graph: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text("utf-8"))
    for row in (*graph["tensors"].values(), *graph.get("queues", {}).values()):
        if "data" in row:
            row["data"] = str(EXAMPLES / row["data"])
    return graph


def op(name: str, op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> dict[str, Any]:
    return {"name": name, "op": op, "inputs": inputs, "outputs": outputs, "attributes": attributes}


def run(folder: Path, graph: dict[str, Any], *words: str) -> dict[str, Any]:
    path = folder / "graph.json"
    path.write_text(json.dumps(graph))
    done = kgrun("execute", str(path), "--device", "cpu", "--json", "--allow-external-data", "--timeout", "60", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def data_parallel() -> dict[str, Any]:
    """train_digits, each rank with its rows of every batch and the gradients averaged."""
    graph = example("train_digits")
    nodes = graph["nodes"]
    for node in nodes[1:]:
        node["inputs"] = [{"images": "own_images", "labels": "own_labels"}.get(n, n) for n in node["inputs"]]
    nodes[1:1] = [op(f"own_{n}_part", "Shard", [n], [f"own_{n}"]) for n in ("images", "labels")]
    gradients = [f"d_{n}" for n in ("hidden_weight", "hidden_bias", "digit_weight", "digit_bias")]
    for node in nodes:
        if node["op"] == "Momentum":
            node["inputs"] = [f"mean_{n}" if n in gradients else n for n in node["inputs"]]
    first = next(i for i, node in enumerate(nodes) if node["op"] == "Momentum")
    nodes.insert(first, op("average", "AllReduce", gradients, [f"mean_{n}" for n in gradients], reduction="avg"))
    return graph


def test_data_parallel_training_on_2_ranks_gives_the_weights_of_one_rank(tmp_path: Path) -> None:
    alone, shared = tmp_path / "alone.safetensors", tmp_path / "shared.safetensors"
    run(tmp_path, example("train_digits"), "--iterations", "60", "--save-parameters", str(alone))
    document = run(tmp_path, data_parallel(), "--iterations", "60", "--save-parameters", str(shared), "--ranks", "2")
    assert [row["op"] for row in document["collectives"]] == ["AllReduce"]
    assert len(document["ranks"]["ranks"]) == 2
    wanted, start = load_file(alone), load_file(DATA / "digits_start.safetensors")
    for name, array in load_file(shared).items():
        np.testing.assert_allclose(array, wanted[name], rtol=0, atol=1e-5)
        if name in start:
            assert np.abs(array - start[name]).max() > 1e-3  # it was trained


def tensor_parallel() -> dict[str, Any]:
    """encoder_ops with attention heads and hidden units divided among the ranks: columns first, then rows."""
    graph = example("encoder_ops")
    made: list[dict[str, Any]] = []
    renamed = {}
    for name in ("query", "key", "value", "expand"):
        weight, bias = f"{name}_weight", f"{name}_bias"
        made.append(op(f"{name}_columns", "Transpose", [weight], [f"{weight}_t"], perm=[1, 0]))
        made.append(op(f"{name}_part", "Shard", [f"{weight}_t"], [f"{weight}_part"]))
        made.append(op(f"{name}_rows", "Transpose", [f"{weight}_part"], [f"own_{weight}"], perm=[1, 0]))
        made.append(op(f"{name}_bias_part", "Shard", [bias], [f"own_{bias}"]))
        renamed |= {weight: f"own_{weight}", bias: f"own_{bias}"}
    for name in ("output", "shrink"):
        made.append(op(f"{name}_part", "Shard", [f"{name}_weight"], [f"own_{name}_weight"]))
        renamed[f"{name}_weight"] = f"own_{name}_weight"
    for node in graph["nodes"]:
        node["inputs"] = [renamed.get(n, n) for n in node["inputs"]]
        made.append(node)
        if node["name"] in ("output_product", "shrink_product"):
            whole = node["outputs"][0]
            node["outputs"] = [f"own_{whole}"]
            made.append(op(f"{whole}_sum", "AllReduce", [f"own_{whole}"], [whole]))
    graph["nodes"] = made
    graph["tensors"]["by_head"]["value"] = ["batch", "sequence", "heads // world_size", "width // heads"]
    graph["tensors"]["by_token"]["value"] = ["batch", "sequence", "width // world_size"]
    return graph


def test_a_tensor_parallel_encoder_equals_the_single_rank_one(tmp_path: Path) -> None:
    words = ("--expected", str(DATA / "encoder.expected.npz"), "--rtol", "1e-4", "--atol", "1e-4", "--ranks", "2")
    document = run(tmp_path, tensor_parallel(), *words)
    assert [row["ok"] for row in document["comparisons"]] == [True]
    assert [row["name"] for row in document["collectives"]] == ["output_raw_sum", "shrunk_raw_sum"]


def test_plan_memory_plans_for_ranks_without_any(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(tensor_parallel()))
    peaks = []
    for ranks in ("1", "2", "4"):
        done = kgrun("plan-memory", str(path), "--json", "--allow-external-data", "--ranks", ranks)
        assert done.returncode == 0, done.stdout + done.stderr
        document = json.loads(done.stdout)
        assert document["dims"]["world_size"] == int(ranks)
        peaks.append(document["memory"]["dynamic_bytes"])
    assert peaks[0] > peaks[1] > peaks[2]
