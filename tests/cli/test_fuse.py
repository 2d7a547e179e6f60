"""`--fuse`: what plans and explanations say of it, and what it cannot go with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.runtime.lower.test_fused import gelu, tensors


@pytest.fixture
def file(graph_file: Any) -> str:
    return str(graph_file("gelu.json", dims={}, nodes=gelu(), tensors=tensors()))


def test_a_plan_has_no_memory_for_what_lies_between(kgrun: Any, file: str) -> None:
    apart, fused = (json.loads(kgrun("plan-memory", file, "--json", *more).out) for more in ([], ["--fuse"]))
    assert (len(apart["steps"]), len(fused["steps"])) == (6, 1)
    assert fused["memory"]["peak_bytes"] < apart["memory"]["peak_bytes"]


def test_explain_names_the_kernel_that_computes_a_tensor(kgrun: Any, file: str) -> None:
    assert "y computes erf itself" in kgrun("explain", file, "erf", "--fuse").out
    assert "Add+Div+Erf+Add+Mul+Mul" in kgrun("explain", file, "y", "--fuse").out


@pytest.mark.parametrize("other", [["--check", "nan"], ["--allow-skip"], ["--compare-with", "cpu"]])
def test_what_looks_at_every_tensor_excludes_it(kgrun: Any, file: str, other: list[str]) -> None:
    done = kgrun("execute", file, "--fuse", *other, "--device", "cpu")
    assert done.code == 2
    assert "error[KG240]" in done.err
    assert "--fuse" in done.err
