"""Calls of operators that select, index, order and rearrange, for the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator

from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType
from tests.runtime.kernels.cuda.call_basics import call, dtypes_of, known


def _selection(op: str) -> Iterator[OpCall]:
    if op == "NonMaxSuppression":
        yield call(op, "float32", (1, 6, 4), (1, 2, 6))
    elif op == "Compress":
        flags = [TensorType("bool", (n,), tuple(i % 3 == 1 for i in range(n))) for n in (4, 6)]
        yield call(op, "float32", (2, 4, 6), flags[0], axis=1)
        yield call(op, "float16", (2, 4, 6), flags[1], axis=-1)
        yield call(op, "int8", (5, 3), flags[1])
        yield call(op, "int64", known(4, 0, 6, 5), flags[0])
    else:
        for value in ((3, 0, 1, 3, 0, 2), (0, 0)):
            x = TensorType("int64", (2, len(value) // 2), value)
            yield infer(op, "known", [x], {}, 4 if op == "Unique" else 1)


def _indexing(op: str) -> Iterator[OpCall]:
    if op == "OneHot":
        for dtype in ("int64", "float16", "uint8", "float32"):
            values = TensorType("bool" if dtype == "uint8" else dtype, (2,))
            yield call(op, dtype, (3, 4), known(5), values, axis=1)
        yield call(op, "int32", (), known(5), TensorType("float32", (2,)))
    elif op in ("GatherND", "ScatterND"):
        yield from _tuples(op)
    else:
        yield from _lines(op)


def _lines(op: str) -> Iterator[OpCall]:
    """Calls of GatherElements and ScatterElements."""
    shape, part = (4, 6, 5), (3, 4, 5)
    for dtype in dtypes_of(op):
        types = [TensorType(dtype, shape), TensorType("int64", part)]
        types += [] if op == "GatherElements" else [TensorType(dtype, part)]
        yield infer(op, f"lines_{dtype}", types, {"axis": 1})
        for reduction in ("add", "mul", "max", "min") if op == "ScatterElements" else ():
            if dtype.startswith("float8"):
                continue  # its few digits differ by the order of the sums
            yield infer(op, f"{reduction}_{dtype}", types, {"axis": 1, "reduction": reduction})
    indices = TensorType("int32", (9,))
    data = [TensorType("float32", (20,)), indices, TensorType("float32", (9,))]
    yield infer(op, "one_axis", data[: all_schemas()[op].inputs[0]], {})


def _tuples(op: str) -> Iterator[OpCall]:
    """Calls of GatherND and ScatterND."""
    for dtype in dtypes_of(op):
        for depth, rest in ((1, (4, 6)), (3, ())):
            indices = TensorType("int64", (2, 3, depth))
            types = [TensorType(dtype, (9, 4, 6)), indices]
            if op == "GatherND":
                yield infer(op, f"tuples_{dtype}", types, {})
                continue
            types.append(TensorType(dtype, (2, 3, *rest)))
            for reduction in ("none", "add", "mul", "max", "min"):
                if reduction == "none" or not dtype.startswith("float8"):
                    yield infer(op, f"{reduction}_{dtype}", types, {"reduction": reduction})
    if op == "GatherND":
        data, indices = TensorType("float16", (2, 3, 5, 2)), TensorType("int64", (2, 3, 4, 1))
        yield infer(op, "batches", [data, indices], {"batch_dims": 2})


def _scans(op: str) -> Iterator[OpCall]:
    if op == "TopK":
        for dtype in dtypes_of(op):
            yield call(op, dtype, (3, 20, 5), known(7), outputs=2, axis=1)
            yield call(op, dtype, (2, 33), known(33), outputs=2, largest=0)
        yield call(op, "float32", (2, 9_000), known(50), outputs=2)
        yield call(op, "float16", (5_000, 2), known(3_000), outputs=2, axis=0, largest=0)
        yield call(op, "float32", (3, 4), known(0), outputs=2)
        return
    for dtype in dtypes_of(op):
        shape = (3, 9, 5) if op == "CumSum" else (3, 5, 4)
        yield call(op, dtype, shape, known(1))
        yield call(op, dtype, shape, known(-1), exclusive=1, reverse=1)
    yield call(op, "float32", (3, 100), known(1), reverse=1)
    yield call(op, "float32", (2, 1_500), known(1), exclusive=1)
    yield call(op, "float32", (0, 4), known(0))


def _rearrangement(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        match op:
            case "ReverseSequence":
                yield call(op, dtype, (4, 3, 2), TensorType("int64", (3,)))
                yield call(op, dtype, (3, 4, 2), TensorType("int64", (3,)), batch_axis=0, time_axis=1)
            case "Trilu":
                yield call(op, dtype, (2, 5, 7), known(1))
                yield call(op, dtype, (5, 4), upper=0)
            case "CenterCropPad":
                yield call(op, dtype, (5, 4, 7), known(2, 7, 8))
                yield call(op, dtype, (5, 4, 7), known(8, 6), axes=[-1, 0])
            case _:
                for mode in ("DCR", "CRD"):
                    yield call(op, dtype, (2, 12, 4, 6), blocksize=2, mode=mode)
    if op == "Trilu":
        yield call(op, "float32", (3, 8), known(-2), upper=0)
        yield call(op, "float32", (3, 8), known(-2))


FAMILIES = {
    "selection": _selection,
    "indexing": _indexing,
    "scans": _scans,
    "rearrangement": _rearrangement,
}
