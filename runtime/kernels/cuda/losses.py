"""Losses over classes on CUDA: a group of threads a row of scores, then one block that sums the rows in order.

Rows are combined without atomics, so that a loss has the same bits at every run.
"""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import BLOCK, c_type, compute_type, source_input, target
from kgrun.runtime.kernels.cuda.rows import lanes, row_kernel, run_rows

_INF = "#define INF __longlong_as_double(0x7ff0000000000000LL)\n"
# What the label of `row` counts for: `kept`, `label` and its weight `w`; a label outside is a fault.
_LABEL = """const long long label = labels[row];
    const bool kept = IGNORED;
    if (kept && (label < 0 || label >= CLASSES)) __trap();
    const T w = !kept ? T(0) : weights ? (T)weights[label] : T(1);"""
_LOG_SUM = """    T m = T(-INF);
    for (long long i = lane; i < n; i += L) m = kg_larger(m, (T)p[base + i * inner]);
    m = kg_all<L>(m, [](T a, T b) { return kg_larger(a, b); });
    T s = 0;
    for (long long i = lane; i < n; i += L) s += exp((T)p[base + i * inner] - m);
    s = log(kg_all<L>(s, [](T a, T b) { return a + b; }));
    if (logs) for (long long i = lane; i < n; i += L) logs[base + i * inner] = kg_to<E>((T)p[base + i * inner] - m - s);
"""
_SUM = "kg_all<L>({0}, [](T a, T b) {{ return a + b; }})"


def _label(call: OpCall, classes: str = "n") -> str:
    ignored = call.attributes.get("ignore_index")
    return _LABEL.replace("IGNORED", "true" if ignored is None else f"label != {ignored}LL").replace("CLASSES", classes)


def _types(call: OpCall, scores: int, group: int) -> str:
    dtype, labels = call.input(scores).dtype, call.input(scores + 1).dtype
    typed = (("T", compute_type(dtype)), ("E", c_type(dtype)), ("I", c_type(labels)))
    return f"{_INF}#define L {group}\n" + "".join(f"typedef {text} {name};\n" for name, text in typed)


@on_cuda("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def _loss(call: OpCall) -> Lowered:
    source = call.input(0)
    n, inner, rows = source.shape[1], prod(source.shape[2:]), call.input(1).size
    scored, single = call.op == "SoftmaxCrossEntropyLoss", call.attributes["reduction"] != "none"
    if rows == 0 and not single:
        return Lowered(())
    group = lanes(rows, n, inner) if scored else 1
    value = "((T)p[base + label * inner] - m - s)" if scored else "(T)p[base + label * inner]"
    stored = "parts[row] = v; parts[rows + row] = w;" if single else "loss[row] = kg_to<E>(v);"
    body = f"""{_LOG_SUM if scored else ""}    if (lane == 0) {{
    {_label(call)}
    const T v = w == T(0) ? T(0) : -{value} * w;
    {stored}
    }}"""
    parameters = "const E* p, const I* labels, const E* weights, E* loss, E* logs, T* parts"
    text = row_kernel("kg_loss", [source.dtype], _types(call, 0, group), parameters, body)
    weights = source_input(2) if call.optional(2) is not None else None
    logs = target(1) if len(call.outputs) > 1 else None
    parts = Operand("workspace", 0) if single else None
    args = (source_input(0), source_input(1), weights, target(), logs, parts)
    work = [run_rows("kg_loss", text, args, rows, n, inner, group)] if rows else []
    if not single:
        return Lowered(tuple(work))
    work.append(_summed(call, rows))
    return Lowered(tuple(work), (max(2 * rows, 1) * itemsize(compute_dtype(source.dtype)),))


def _summed(call: OpCall, rows: int) -> KernelCall:
    """The sum of the rows' losses, divided by the sum of their weights for `mean`."""
    result = "a / b" if call.attributes["reduction"] == "mean" else "a"
    body = f"""    T a = 0, b = 0;
    for (long long i = lane; i < n; i += L) {{ a += parts[i]; b += parts[n + i]; }}
    a = {_SUM.format("a")};
    b = {_SUM.format("b")};
    if (lane == 0) loss[0] = kg_to<E>({result});"""
    dtype = call.input(0).dtype
    text = row_kernel("kg_loss_sum", [dtype], _types(call, 0, BLOCK), "const T* parts, E* loss", body)
    return run_rows("kg_loss_sum", text, (Operand("workspace", 0), target()), 1, rows, 1, BLOCK)


@on_cuda("SoftmaxCrossEntropyLossGrad")
def _loss_gradient(call: OpCall) -> Lowered:
    logs, out = call.input(1), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    n, inner, rows = logs.shape[1], prod(logs.shape[2:]), call.input(2).size
    mean, each = call.attributes["reduction"] == "mean", call.attributes["reduction"] == "none"
    weights = source_input(3) if call.optional(3) is not None else None
    summed = mean and (weights is not None or "ignore_index" in call.attributes)
    group = lanes(rows, n, inner)
    divisor = " / total[0]" if summed else " / T(rows)" if mean else ""
    body = f"""    {_label(call)}
    const T scale = w == T(0) ? T(0) : (T)upstream[{"row" if each else "0"}] * w{divisor};
    for (long long i = lane; i < n; i += L) {{
      const long long at = base + i * inner;
      q[at] = kg_to<E>(w == T(0) ? T(0) : (exp((T)p[at]) - T(i == label)) * scale);
    }}"""
    parameters = "const E* upstream, const E* p, const I* labels, const E* weights, E* q, const T* total"
    text = row_kernel("kg_loss_grad", [logs.dtype], _types(call, 1, group), parameters, body)
    total = Operand("workspace", 0) if summed else None
    args = (source_input(0), source_input(1), source_input(2), weights, target(), total)
    work = run_rows("kg_loss_grad", text, args, rows, n, inner, group)
    if not summed:
        return Lowered((work,))
    return Lowered((_weight(call, rows, n), work), (itemsize(compute_dtype(logs.dtype)),))


def _weight(call: OpCall, rows: int, classes: int) -> KernelCall:
    """The sum of what all labels count for."""
    body = f"""    T a = 0;
    for (long long row = lane; row < n; row += L) {{
    {_label(call, "inner")}
    a += w;
    }}
    a = {_SUM.format("a")};
    if (lane == 0) total[0] = a;"""
    dtype = call.input(1).dtype
    parameters = "const I* labels, const E* weights, T* total"
    text = row_kernel("kg_label_weight", [dtype], _types(call, 1, BLOCK), parameters, body)
    weights = source_input(3) if call.optional(3) is not None else None
    args = (source_input(2), weights, Operand("workspace", 0))
    return run_rows("kg_label_weight", text, args, 1, rows, classes, BLOCK)
