"""Row-wise kernels on CUDA: Softmax and its kin, ArgMax, LayerNormalization; a group of threads a row.

A tensor is seen as [outer, n, inner] with rows along n. A row that is short enough is read once, into registers. In
place is safe: a longer row is reread only by the thread that writes the same element, after all reductions of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.shapes import axis_of, broadcast_strides
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand
from kgrun.runtime.kernels.cuda.common import (
    BLOCK,
    c_type,
    code,
    compute_type,
    cuda_file,
    int64,
    integers,
    launch,
    number,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.elementwise import offsets_text
from kgrun.runtime.program import Value

_FEW_ROWS = 4_096
_IDLE_ROWS = 2_048  # up to so many a block each does not fill a GPU more than twice
_MOST_HELD = 16  # elements of a row in one thread's registers


def lanes(rows: int, n: int, inner: int) -> int:
    """How many threads work on one row: neighbouring threads should read neighbouring elements."""
    if n < 16 or (inner >= 32 and rows >= _FEW_ROWS):
        return 1
    return BLOCK if n >= 1_024 or (n >= 256 and rows <= _IDLE_ROWS) else 32


def held(n: int, group: int, place: str = "base + i * inner") -> tuple[str, str, str]:
    """C text for a row of T: what reads it, the head of a loop over a thread's elements, and element `i` there.

    A row of more than `_MOST_HELD` elements a thread is read again wherever it is used.
    """
    each = -(-n // group)
    if each > _MOST_HELD:
        return "", '_Pragma("unroll 8") for (long long i = lane; i < n; i += L)', f"(T)p[{place}]"
    # Counted to a constant, so that it is unrolled and all reads are under way together.
    loop = f"""_Pragma("unroll") for (int k = 0; k < {each}; ++k) if (const long long i = lane + k * L; i < n)"""
    return f"T x[{each}];\n    {loop} x[k] = (T)p[{place}];", loop, "x[k]"


def row_kernel(name: str, dtypes: Sequence[str], types: str, parameters: str, body: str) -> str:
    """A kernel that runs `body` for each row: `row`, `base`, `lane`, `n`, `inner` and L are known there."""
    return f"""{prelude(dtypes)}{cuda_file("rows.cuh")}
{types}
extern "C" __global__ void __launch_bounds__(256) {name}({parameters}, long long rows, long long n, long long inner) {{
  const long long groups = gridDim.x * (long long)(blockDim.x / L);
  const int lane = threadIdx.x % L;
  for (long long row = blockIdx.x * (long long)(blockDim.x / L) + threadIdx.x / L; row < rows; row += groups) {{
    const long long base = inner == 1 ? row * n : row / inner * n * inner + row % inner;
{body}
  }}
}}
"""


def run_rows(
    name: str, text: str, args: Sequence[Operand | Value | None], rows: int, n: int, inner: int, group: int
) -> KernelCall:
    """The launch of a `row_kernel`."""
    return launch(code(name, text), (*args, int64(rows), int64(n), int64(inner)), rows * group)


_SOFTMAX = """    READ
    T m = T(-INF);
    EACH m = kg_larger(m, ELEMENT);
    m = kg_all<L>(m, [](T a, T b) { return kg_larger(a, b); });
    T s = 0;
    EACH s += exp(ELEMENT - m);
    s = kg_all<L>(s, [](T a, T b) { return a + b; });
    FACTOR
    EACH q[base + i * inner] = kg_to<O>(VALUE);"""
_SOFTMAX_TEXT = {
    "Softmax": _SOFTMAX.replace("FACTOR", "").replace("VALUE", "exp(ELEMENT - m) / s"),
    "LogSoftmax": _SOFTMAX.replace("FACTOR", "s = log(s);").replace("VALUE", "ELEMENT - m - s"),
    "Hardmax": """    KgAt<T> best = {T(0), -1};
    for (long long i = lane; i < n; i += L) {
      const KgAt<T> next = {(T)p[base + i * inner], i};
      if (kg_before<false, false>(next, best)) best = next;
    }
    best = kg_first<L, false, false>(best);
    for (long long i = lane; i < n; i += L) q[base + i * inner] = kg_to<O>(i == best.index ? T(1) : T(0));""",
}


def softmax(call: OpCall) -> Lowered:
    """Softmax, LogSoftmax or Hardmax along `axis`."""
    source, axis = call.input(0), axis_of(call)
    if source.size == 0:
        return Lowered(())
    n, inner = source.shape[axis], prod(source.shape[axis + 1 :])
    rows = source.size // n
    group = lanes(rows, n, inner)
    stored, compute = c_type(source.dtype), compute_type(source.dtype)
    types = f"#define INF __longlong_as_double(0x7ff0000000000000LL)\n#define L {group}\ntypedef {compute} T;\n"
    body = _SOFTMAX_TEXT[call.op]
    for name, text in zip(("READ", "EACH", "ELEMENT"), held(n, group), strict=True):
        body = body.replace(name, text)
    text = row_kernel("kg_softmax", [source.dtype], types + f"typedef {stored} O;", f"const {stored}* p, O* q", body)
    return Lowered((run_rows("kg_softmax", text, (source_input(0), target()), rows, n, inner, group),))


def arg_extreme(call: OpCall) -> Lowered:
    """ArgMax or ArgMin along `axis`."""
    source, axis = call.input(0), axis_of(call)
    if call.outputs[0].size == 0:
        return Lowered(())
    n, inner = source.shape[axis], prod(source.shape[axis + 1 :])
    rows = call.outputs[0].size
    group = lanes(rows, n, inner)
    order = (
        f"{'true' if call.op == 'ArgMin' else 'false'}, {'true' if call.attributes['select_last_index'] else 'false'}"
    )
    body = f"""    KgAt<T> best = {{T(0), -1}};
    for (long long i = lane; i < n; i += L) {{
      const KgAt<T> next = {{(T)p[base + i * inner], i}};
      if (kg_before<{order}>(next, best)) best = next;
    }}
    best = kg_first<L, {order}>(best);
    if (lane == 0) q[row] = best.index;"""
    types = f"#define L {group}\ntypedef {compute_type(source.dtype)} T;"
    text = row_kernel("kg_arg", [source.dtype], types, f"const {c_type(source.dtype)}* p, long long* q", body)
    return Lowered((run_rows("kg_arg", text, (source_input(0), target()), rows, n, inner, group),))


def layer_normalization(call: OpCall) -> Lowered:
    """LayerNormalization over the axes from `axis` on, in float (double for float64), two passes for the variance."""
    source, axis = call.input(0), axis_of(call)
    normal = source.shape[axis:]
    n, rows = prod(normal), prod(source.shape[:axis])
    if source.size == 0:
        return Lowered(())
    group = lanes(rows, n, 1)
    affine = [index for index in (1, 2) if call.optional(index) is not None]
    strides = [broadcast_strides(call.input(index).shape, normal) for index in affine]
    stash = call.outputs[1].dtype if len(call.outputs) > 1 else "float32"
    stored, statistic = c_type(source.dtype), c_type(stash)
    # A scale of the whole normalized shape is read by the flat index, any other by strides.
    whole = all(call.input(index).size == n for index in affine)
    place = (
        "const long long o0 = i, o1 = i;"
        if whole
        else offsets_text(["o0", "o1"][: len(affine)], len(normal), "long long")
    )
    bias = " + (T)bias[o1]" if 2 in affine else ""
    read, each, element = held(n, group, "base + i")
    body = f"""    {read}
    T s = 0;
    {each} s += {element};
    const T mean = kg_all<L>(s, [](T a, T b) {{ return a + b; }}) / T(n);
    s = 0;
    {each} {{ const T d = {element} - mean; s += d * d; }}
    const T variance = kg_all<L>(s, [](T a, T b) {{ return a + b; }}) / T(n);
    const T factor = T(1) / sqrt(variance + epsilon);
    {each} {{
      {place}
      q[base + i] = kg_to<O>(({element} - mean) * factor * (T)scale[o0]{bias});
    }}
    if (lane == 0 && means) means[row] = kg_to<M>(mean);
    if (lane == 0 && factors) factors[row] = kg_to<M>(factor);"""
    rank = len(normal)
    types = f"""#define L {group}
typedef {compute_type(source.dtype)} T;
typedef {stored} O;
typedef {statistic} M;
struct Layout {{ long long size[{rank}]; long long step[2][{rank}]; }};"""
    parameters = f"const {stored}* p, const {stored}* scale, const {stored}* bias, O* q, M* means, M* factors"
    text = row_kernel("kg_layer_norm", [source.dtype, stash], types, f"{parameters}, T epsilon, const Layout g", body)
    steps = [step for operand in strides for step in operand] + [0] * (rank * (2 - len(strides)))
    outputs = [target(index) if index < len(call.outputs) else None for index in range(3)]
    args: list[Operand | Value | None] = [source_input(0), source_input(1)]
    args += [source_input(2) if 2 in affine else None, *outputs]
    args += [number(call.attributes["epsilon"], source.dtype), integers([*normal, *steps])]
    return Lowered((run_rows("kg_layer_norm", text, args, rows, n, 1, group),))
