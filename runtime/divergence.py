"""The first node whose results differ from a reference: every tensor compared right after the step that made it.

The plan is the one that runs anyway, so that a fault of memory reuse shows too. References are the same graph on the
CPU, ONNX Runtime on the model, or arrays from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from kgrun.graphs.errors import DeviceUnavailable, UsageError
from kgrun.graphs.records import dataclass
from kgrun.runtime.dump.writer import After, dump_points
from kgrun.runtime.execute import run_observed
from kgrun.runtime.report import NodeDifference
from kgrun.runtime.session import Session

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


Array = np.ndarray[Any, Any]
_ROUNDED = frozenset({"int8", "uint8", "int4", "uint4"})  # they stand for real numbers between two steps of them
_SUM_BYTES = frozenset({"MatMulInteger", "ConvInteger"})  # and so does int32 in graphs with these
_SAMPLE = 1 << 16  # elements that a quartile is taken of
_WIDTHS = {2: np.int16, 4: np.int32, 8: np.int64}


def divergences(
    session: Session, reference: Mapping[str, Array], rtol: float, atol: float, *, equal_nan: bool = False
) -> tuple[NodeDifference, ...]:
    """One row a tensor that a node makes and the reference has, in the order of the run; parameters are put back.

    Raises:
        UsageError: the reference has none of the tensors, or tensors wait on the host.
    """
    rows: list[NodeDifference] = []
    node_of = {name: node for node in session.bound.nodes for name in node.written_names()}
    rounded = _ROUNDED | ({"int32"} if any(node.op in _SUM_BYTES for node in session.bound.nodes) else set())

    def judge(name: str, array: Array) -> None:
        if name in reference:
            node, wanted = node_of[name], reference[name]
            exact = array.dtype.kind in "iub" and array.dtype.name not in rounded
            rows.append(difference(node.name, node.op, name, array, wanted, rtol, atol, equal_nan, exact=exact))

    captured(session, [name for name in node_of if name in reference], judge)
    if not rows:
        raise UsageError("the reference has none of the tensors that the graph's nodes make", code="KG212")
    return tuple(rows)


def captured(session: Session, names: Sequence[str], take: Callable[[str, Array], None]) -> None:
    """Run once and hand over each tensor when it is made, in the order of the run."""
    loaded = session.loaded
    if loaded.program.offload is not None:
        raise UsageError("tensors that wait on the host cannot be compared", code="KG240", help="use --offload off")
    restore = loaded.snapshot() if loaded.updated else None

    def read(wanted: Sequence[str]) -> None:
        for name in wanted:
            array = loaded.read(name, pinned=False)
            if array is not None:
                take(name, array)

    before, after = dump_points(loaded.program, names)
    try:
        run_observed(session.device, loaded.program.steps, loaded.prepared, [After(after, read)])
        read(before)
    finally:
        if restore is not None:
            restore()


def difference(
    node: str,
    op: str,
    tensor: str,
    got: Array,
    wanted: Array,
    rtol: float,
    atol: float,
    equal_nan: bool,
    *,
    exact: bool = False,
) -> NodeDifference:
    """How far `got` is from `wanted`: |got - wanted| ≤ atol + rtol·max(|wanted|, its typical magnitude).

    Sums of many terms are as exact as their terms are large, so that an element near zero is no measure of itself. A
    `rtol` that is finer than four steps of the tensor's type counts as four, but 0 as 0. `exact` asks for equality.
    """
    nan, wanted_nan = _nans(got), _nans(wanted)
    if got.shape != wanted.shape:
        size = int(got.size)
        return NodeDifference(node, op, tensor, False, size, size, None, None, None, None, nan, wanted_nan)
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        apart, magnitudes = np.abs(a - b), np.abs(b)
        slack = np.zeros_like(b) if exact else _slack(got, magnitudes, rtol, atol)
        # Not as float64, which has not all integers of 64 bits.
        wrong = got != wanted if exact else ~((apart <= slack) | (a == b))
        if equal_nan:
            wrong &= ~(np.isnan(a) & np.isnan(b))
        finite = np.isfinite(apart)
        relative = (apart / magnitudes)[finite & (b != 0)]
        excess = (apart / slack)[finite & (slack > 0)]
    count = int(np.count_nonzero(wrong))
    return NodeDifference(
        node=node, op=op, tensor=tensor, ok=count == 0, mismatched=count, size=int(got.size),
        excess=float(excess.max()) if excess.size else None,
        max_abs=float(apart[finite].max()) if finite.any() else None,
        max_rel=float(relative.max()) if relative.size else None,
        max_ulp=_ulps(got, wanted), nan=nan, wanted_nan=wanted_nan,
    )  # fmt: skip


def _slack(got: Array, magnitudes: Array, rtol: float, atol: float) -> Array:
    """What each element may be away."""
    if rtol and got.dtype.kind not in "iu":
        rtol = max(rtol, 4 * float(ml_dtypes.finfo(got.dtype).eps))
    slack: Array = atol + rtol * np.maximum(magnitudes, typical_magnitude(magnitudes))
    return slack


def typical_magnitude(magnitudes: Array) -> float:
    """Root mean square of the finite magnitudes that are not 0, without those of masks: over 1,000 times the
    first quartile.

    0 where there are none. Of large arrays the quartile is that of a sample.
    """
    found = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
    if not found.size:
        return 0.0
    quartile = np.quantile(found[:: found.size // _SAMPLE | 1], 0.25)
    return float(np.sqrt(np.mean(np.square(found[found <= 1000 * quartile]))))


def _nans(array: Array) -> int:
    if array.dtype.kind in "iub":
        return 0
    return int(np.count_nonzero(np.isnan(array.astype(np.float64))))


def _ulps(got: Array, wanted: Array) -> int | None:
    """Largest distance in units in the last place of `got`'s type; None for integers and where nothing is finite.

    Bits of floats, read as sign and magnitude, count the representable numbers between two values.
    """
    width = _WIDTHS.get(got.dtype.itemsize)
    if got.dtype.kind in "iub" or width is None:
        return None
    other = wanted.astype(got.dtype)
    finite = np.isfinite(got.astype(np.float64)) & np.isfinite(other.astype(np.float64))
    if not finite.any():
        return None
    a, b = (_ordered(np.ascontiguousarray(array)[finite].view(width)) for array in (got, other))
    far = np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)  # wraps to the distance
    return int(far.max())


def _ordered(bits: Array) -> Array:
    """Signed-magnitude bits as integers in the order of the numbers they stand for."""
    wide = bits.astype(np.int64)
    least = np.int64(np.iinfo(bits.dtype).min)
    return np.where(wide < 0, least - wide, wide)


@dataclass(frozen=True, slots=True)
class Reference:
    """Arrays to compare with, and what they are called in reports."""

    name: str
    arrays: Mapping[str, Array]


def cpu_reference(graph: KernelGraph, given: Mapping[str, Array], settings: Mapping[str, Any]) -> Reference:
    """Every tensor that a node makes when the graph runs on the CPU device, each with bytes of its own."""
    arrays: dict[str, Array] = {}
    kept = {key: settings[key] for key in ("dims", "seed", "allow_empty") if key in settings}
    with Session(graph, device="cpu", values=given, memory="none", **kept) as session:
        session.take_inputs(given)
        names = [name for node in session.bound.nodes for name in node.written_names()]
        captured(session, names, arrays.__setitem__)
    return Reference("the CPU device", arrays)


def onnxruntime_reference(model: Path, given: Mapping[str, Array], names: Sequence[str]) -> Reference:
    """Those of the tensors that the model names too, as ONNX Runtime computes them on its CPU.

    Raises:
        DeviceUnavailable: ONNX Runtime or onnx is not installed. UsageError: it does not take the model or the inputs.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        help = "pip install onnx onnxruntime"
        raise DeviceUnavailable(f"ONNX Runtime cannot be imported: {error}", code="KG706", help=help) from error
    proto = onnx.load(str(model), load_external_data=False)
    made = {name for node in proto.graph.node for name in node.output if name}
    wanted = [name for name in names if name in made]
    have = {output.name for output in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in have)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")  # else some processors add bytes up in 16 bits
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.parent))
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        feeds = {item.name: given[item.name] for item in session.get_inputs()}
        found = session.run(wanted, feeds) if wanted else []  # an empty list would ask for every output
    except KeyError as error:
        raise UsageError(f"ONNX Runtime needs input {error}", code="KG210", help="give it with --input") from error
    except Exception as error:  # its own classes derive from nothing narrower
        raise UsageError(f"ONNX Runtime does not run the model: {error}", code="KG200") from error
    return Reference("ONNX Runtime", dict(zip(wanted, found, strict=True)))
