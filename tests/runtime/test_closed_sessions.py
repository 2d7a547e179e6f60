"""Sessions after their end: what they are asked is an error, and never what lies in memory that they gave back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import UsageError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.eager import EagerSession
from kgrun.runtime.infer import infer
from kgrun.runtime.several import Graphs
from kgrun.runtime.shapes import ShapeSession
from tests.support import graph, node, tensor

F = "float32"
X = np.ones(3, F)


def scaled() -> KernelGraph:
    tensors = {"x": tensor("input", ["n"], F), "w": tensor("parameter", (1,), F, init={"fill": 2})}
    return graph([node("a", ["x", "w"], ["y"], op="Mul")], tensors, ["y"], name="a")


def refused(ask: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match="the session is closed") as caught:
        ask()
    assert (caught.value.code, caught.value.exit) == ("KG200", 2)


@pytest.mark.parametrize("kind", [Session, EagerSession])
def test_a_closed_session_neither_runs_nor_reads_what_it_gave_back(kind: type[Session] | type[EagerSession]) -> None:
    with kind(scaled(), device="cpu", values={"x": X}) as session:
        session.run()
    for name in ("w", "y"):
        refused(lambda name=name: session.output(name))  # type: ignore[misc]
    refused(session.run)
    refused(lambda: session.run({"x": X}))
    session.close()


def test_a_closed_session_does_not_infer() -> None:
    with Session(scaled(), device="cpu", values={"x": X}) as session:
        infer(session, {})
    refused(lambda: infer(session, {"x": X}))


def test_a_closed_session_of_many_shapes_knows_no_shape_any_more() -> None:
    with ShapeSession(scaled(), device="cpu") as session:
        session({"x": X})
    refused(lambda: session({"x": X}))
    refused(lambda: session.run({"x": np.ones(4, F)}))


def test_a_closed_session_of_several_graphs_runs_none() -> None:
    with Graphs([scaled()], device="cpu", values={"a": {"x": X}}) as graphs:
        graphs.run()
    refused(graphs.run)
