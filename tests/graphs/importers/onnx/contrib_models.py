"""Models of one operator of ONNX Runtime's own domain, run by kgrun and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.onnx import onnx_graph

from .models import Array, run


@dataclass(frozen=True)
class Case:
    """An operator with its inputs, None for an absent one, and attributes.

    Attributes:
        constants: positions of inputs that the model holds itself.
        outputs: how many are asked for.
        domain: of the operator.
        valid: by output, how many rows of each sequence mean something: along axis 1, of caches along axis 2.
    """

    op: str
    arrays: Sequence[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    outputs: int = 1
    domain: str = "com.microsoft"
    valid: dict[int, tuple[int, ...]] = field(default_factory=dict)


def refused(folder: Path, case: Case, message: str) -> None:
    """The import of the case's model ends with `message`."""
    save(folder / "m.onnx", case)
    with pytest.raises(GraphError, match=message):
        onnx_graph(folder / "m.onnx")


def save(path: Path, case: Case) -> dict[str, Array]:
    """Write the model of one node; returns its inputs. Their leading axes are named, so that they stay open."""
    import onnx

    helper = onnx.helper
    names = ["" if array is None else f"i{at}" for at, array in enumerate(case.arrays)]
    node = helper.make_node(
        case.op, names, [f"y{at}" for at in range(case.outputs)], "n", domain=case.domain, **case.attributes
    )
    given = {name: array for name, array in zip(names, case.arrays, strict=True) if array is not None}
    held = {f"i{at}" for at in case.constants}
    info = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
        if name not in held
    ]
    initializers = [onnx.numpy_helper.from_array(given[name], name) for name in given if name in held]
    outs = [onnx.ValueInfoProto(name=f"y{at}") for at in range(case.outputs)]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", info, outs, initializers)
    path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
    return {name: array for name, array in given.items() if name not in held}


def by_onnx_runtime(path: Path, inputs: dict[str, Array]) -> list[Array]:
    """The outputs as ONNX Runtime computes them."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")  # else some processors add up in 16 bits
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def agree(case: Case, path: Path) -> None:
    """Check that kgrun computes what ONNX Runtime does, in types, shapes and elements."""
    inputs = save(path, case)
    found = run(onnx_graph(path), inputs)
    for at, wanted in enumerate(by_onnx_runtime(path, inputs)):
        got = found[f"y{at}"]
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        if at in case.valid:
            axis = 1 if wanted.ndim == 3 else 2
            rows = np.arange(wanted.shape[axis]) < np.array(case.valid[at])[:, None]
            got, wanted = (array if axis == 1 else array.swapaxes(1, 2) for array in (got, wanted))
            got, wanted = got[rows], wanted[rows]
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=f"output {at}")
        else:  # ONNX Runtime's kernels round twice
            assert np.abs(got.astype(int) - wanted.astype(int)).max(initial=0) <= int(wanted.dtype.itemsize == 1)
