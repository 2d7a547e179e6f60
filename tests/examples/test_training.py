"""examples/train_digits.yaml as its README says: it learns, and takes the steps that numpy takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.examples.test_example_files import DATA, script
from tests.examples.test_run import kgrun

Array = np.ndarray[Any, Any]


def run(*words: str) -> Any:
    done = kgrun("execute", *words, "--device", "cpu", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def value(document: Any, output: str) -> float:
    return next(row["value"] for row in document["outputs"] if row["name"] == output)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The file that a training saved, and its report."""
    path = tmp_path_factory.mktemp("training") / "trained.safetensors"
    return path, run("examples/train_digits.yaml", "--save-parameters", str(path))


def test_S22_the_queues_data_are_trained_on_and_the_loss_falls(trained: tuple[Path, Any]) -> None:
    _, document = trained
    assert document["iterations"] == 420
    assert document["queues"][0]["left"] == 0
    assert value(document, "loss") < 0.1 < value(run("examples/train_digits.yaml", "--iterations", "1"), "loss")


def test_S39_the_weights_are_those_of_the_same_steps_in_numpy(trained: tuple[Path, Any]) -> None:
    steps, given = script("train_steps"), np.load(DATA / "digits_train.npz")
    wanted = steps.trained(load_file(DATA / "digits_start.safetensors"), given["images"], given["labels"])
    held = load_file(trained[0])
    for name, array in wanted.items():
        np.testing.assert_allclose(held[name], array, rtol=0, atol=1e-4)
        np.testing.assert_allclose(load_file(DATA / "digits_mlp.safetensors")[name], array, rtol=0, atol=1e-6)


def test_S106_digits_that_the_training_never_saw_are_recognised(trained: tuple[Path, Any]) -> None:
    document = run("examples/test_digits.yaml", "--load-parameters", str(trained[0]))
    assert value(document, "accuracy") >= 0.95
    held, seen = np.load(DATA / "digits.npz")["images"], np.load(DATA / "digits_train.npz")["images"]
    assert len(held) == 450
    rows = {image.tobytes() for image in seen}
    assert not any(image.tobytes() in rows for image in held)


def test_half_the_memory_gives_the_same_weights(trained: tuple[Path, Any], tmp_path: Path) -> None:
    path, document = trained
    half = tmp_path / "half.safetensors"
    limit = str(document["memory"]["peak_bytes"] // 2)
    words = ("--memory-limit", limit, "--offload", "auto", "--save-parameters", str(half))
    again = run("examples/train_digits.yaml", *words)
    assert again["memory"]["measured_peak_bytes"] <= int(limit)
    for name, array in load_file(path).items():
        np.testing.assert_array_equal(load_file(half)[name], array)
