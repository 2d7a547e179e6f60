"""RNN, GRU and LSTM on CUDA: one tiled product for the inputs of all steps, then a launch a step (two for a GRU whose
reset comes before the product). A warp computes the gates of one element of the state, which two buffers hold in turn.
"""

from __future__ import annotations

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.recurrent import GATES, Activation, Recurrence, recurrence
from kgrun.graphs.operators.scalar_code import compute_dtype, literal
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    c_type,
    code,
    compute_type,
    int64,
    integers,
    source_input,
)
from kgrun.runtime.kernels.cuda.gemm import gemm_source, grid_of, tile_for
from kgrun.runtime.kernels.cuda.rows import row_kernel, run_rows
from kgrun.runtime.program import Value

_PROJECTED, _STATE, _MEMORY, _UPDATE, _RESET = 0, 1, 3, 4, 5  # workspaces; the state takes two
_TEXTS = {
    "Relu": "x > T(0) ? x : T(0)",
    "Tanh": "tanh(x)",
    "Sigmoid": "T(1) / (T(1) + exp(-x))",
    "Softsign": "x / (T(1) + fabs(x))",
    "Softplus": "fmax(x, T(0)) + log1p(exp(-fabs(x)))",
    "LeakyRelu": "x < T(0) ? {alpha} * x : x",
    "ThresholdedRelu": "x >= {alpha} ? x : T(0)",
    "Elu": "x < T(0) ? {alpha} * expm1(x) : x",
    "Affine": "{alpha} * x + {beta}",
    "ScaledTanh": "{alpha} * tanh({beta} * x)",
    "HardSigmoid": "fmin(fmax({alpha} * x + {beta}, T(0)), T(1))",
}
# What every step knows: element j of sequence b; the dot product of the state with a row of the weights; what the
# gates get from inputs and biases. The first step reads the initial state, or zeros where there is none.
_HEAD = """    const long long b = row / n, j = row % n;
    const bool live = !lengths || lengths[b] > t;
    auto state = [&](long long k) {
      return before ? before[b * n + k] : first ? (T)first[b * s.first_b + k] : T(0);
    };
    auto weighed = [&](long long gate, const T* of) {
      const E* line = weights + (gate * n + j) * n;
      T sum = 0;
      for (long long k = lane; k < n; k += L) sum += (of ? of[b * n + k] : state(k)) * (T)line[k];
      return kg_all<L>(sum, [](T x, T y) { return x + y; });
    };
    auto own = [&](long long gate) { return projected[b * s.projected_b + gate * n + j]; };
    auto added = [&](long long gate) { return biases ? (T)biases[gate * n + j] : T(0); };
    auto entry = [&](long long gate) {
      return own(gate) + added(gate) + (biases ? (T)biases[(s.gates + gate) * n + j] : T(0));
    };
"""
_STORE = """    if (lane == 0) {
      const T held = state(j);
      const T shown = live ? made : held;
      after[b * n + j] = shown;
      if (series) series[b * s.series_b + j] = kg_to<E>(live ? made : T(0));
      if (last) last[b * s.last_b + j] = kg_to<E>(shown);
    }"""
_RNN = _HEAD + "    const T made = kg_f(entry(0) + weighed(0, 0));\n" + _STORE
_GRU_GATES = (
    _HEAD
    + """    const T z = kg_f(entry(0) + weighed(0, 0)), r = kg_f(entry(1) + weighed(1, 0));
    if (lane == 0) { update[b * n + j] = z; reset[b * n + j] = r * state(j); }"""
)
_GRU_LAST = (
    _HEAD
    + """    const T z = update[b * n + j], c = kg_g(entry(2) + weighed(2, reset));
    const T made = (T(1) - z) * c + z * state(j);
"""
    + _STORE
)
_GRU_LATE = (
    _HEAD
    + """    const T z = kg_f(entry(0) + weighed(0, 0)), r = kg_f(entry(1) + weighed(1, 0));
    const T inner = weighed(2, 0) + (biases ? (T)biases[(s.gates + 2) * n + j] : T(0));
    const T c = kg_g(own(2) + added(2) + r * inner);
    const T made = (T(1) - z) * c + z * state(j);
"""
    + _STORE
)
_LSTM = (
    _HEAD
    + """    const T had = before ? memory[b * n + j] : first_memory ? (T)first_memory[b * s.first_b + j] : T(0);
    const T pi = peepholes ? (T)peepholes[j] : T(0), po = peepholes ? (T)peepholes[n + j] : T(0);
    const T pf = peepholes ? (T)peepholes[2 * n + j] : T(0);
    const T taken = kg_f(entry(0) + weighed(0, 0) + pi * had);
    const T kept = FORGET;
    const T cell = kept * had + taken * kg_g(entry(3) + weighed(3, 0));
    const T made = kg_f(entry(1) + weighed(1, 0) + po * cell) * kg_h(cell);
    if (lane == 0) {
      memory[b * n + j] = live ? cell : had;
      if (last_memory) last_memory[b * s.last_b + j] = kg_to<E>(live ? cell : had);
    }
"""
    + _STORE
)
_PARAMETERS = (
    "const T* projected, const E* weights, const E* biases, const E* peepholes, const int* lengths, const T* before, "
    "T* after, const E* first, const E* first_memory, T* memory, T* update, T* reset, E* series, E* last, "
    "E* last_memory, const Steps s, long long t"
)


@dataclass(frozen=True, slots=True)
class _Direction:
    """One direction of a call: its number and the texts of its kernels in the order of their launches."""

    index: int
    texts: tuple[str, ...]


@on_cuda("RNN", "GRU", "LSTM")
def _recurrent(call: OpCall) -> Lowered:
    r = recurrence(call)
    if not call.outputs or all(out.size == 0 for out in call.outputs):
        return Lowered(())
    width = itemsize(compute_dtype(call.input(0).dtype))
    state = r.batch * r.hidden * width
    workspace = [max(r.steps, 1) * r.batch * GATES[call.op] * r.hidden * width, *[state] * 3]
    workspace += [state, state] if call.op == "GRU" else []
    work: list[KernelCall] = []
    for index in range(r.directions):
        direction = _Direction(index, _texts(call, r.activations[index]))
        work.append(_projection(call, r, index))
        order = range(r.steps - 1, -1, -1) if r.reverse[index] else range(r.steps)
        for done, t in enumerate(order):
            work += _step(call, r, direction, t, done)
    return Lowered(tuple(work), tuple(workspace))


def _projection(call: OpCall, r: Recurrence, direction: int) -> KernelCall:
    """All inputs times the gates' weights, in the compute type: [rows of X, gates · hidden]."""
    dtype = call.input(0).dtype
    m, n, k = r.steps * r.batch, GATES[call.op] * r.hidden, r.inputs
    tile = tile_for(dtype, m, n, 1)
    problem = """  static constexpr bool A_ALONG_K = true, B_ALONG_K = true;
  const E *x, *w;
  T* d;
  __device__ __forceinline__ S load_a(long long r, long long i) const { return (S)x[r * k + i]; }
  __device__ __forceinline__ S load_b(long long i, long long c) const { return (S)w[c * k + i]; }
  __device__ __forceinline__ void store(long long r, long long c, T s) const { d[r * n + c] = s; }"""
    kind = compute_type(dtype)
    setup = "g.x = x; g.w = w; g.d = d;"
    text = gemm_source("kg_projection", dtype, tile, problem, f"const E* x, const E* w, {kind}* d", setup)
    weights = Operand("input", 1, direction * n * k * itemsize(dtype))
    args: list[Operand | Value | None] = [source_input(0), weights, Operand("workspace", _PROJECTED)]
    args += map(int64, (m, n, k, 1))
    return KernelCall(code("kg_projection", text), tuple(args), grid_of(tile, m, n, 1), (tile.threads, 1, 1))


def _texts(call: OpCall, activations: tuple[Activation, ...]) -> tuple[str, ...]:
    dtype, clip = call.input(0).dtype, call.attributes.get("clip")
    limited = "x" if clip is None else f"fmin(fmax(x, {literal(-clip)}), {literal(clip)})"
    functions = ""
    for name, activation in zip("fgh", activations, strict=False):
        text = _TEXTS[activation.name].replace("{alpha}", literal(activation.alpha))
        text = text.replace("{beta}", literal(activation.beta))
        functions += f"__device__ __forceinline__ T kg_{name}(T x) {{ x = {limited}; return {text}; }}\n"
    types = f"""#define L 32
typedef {c_type(dtype)} E;
typedef {compute_type(dtype)} T;
struct Steps {{ long long projected_b, first_b, series_b, last_b, gates; }};
{functions}"""
    bodies: tuple[str, ...] = (_RNN,)
    if call.op == "GRU":
        bodies = (_GRU_LATE,) if call.attributes["linear_before_reset"] else (_GRU_GATES, _GRU_LAST)
    if call.op == "LSTM":
        forget = "T(1) - taken" if call.attributes["input_forget"] else "kg_f(entry(2) + weighed(2, 0) + pf * had)"
        bodies = (_LSTM.replace("FORGET", forget),)
    return tuple(row_kernel("kg_recurrent", [dtype], types, _PARAMETERS, body) for body in bodies)


def _step(call: OpCall, r: Recurrence, direction: _Direction, t: int, done: int) -> list[KernelCall]:
    """The launches of step `t`, the `done`-th of its direction."""
    d, hidden, gates = direction.index, r.hidden, GATES[call.op]
    stored, wide = itemsize(call.input(0).dtype), itemsize(compute_dtype(call.input(0).dtype))
    line = gates * hidden
    projected_t, projected_b = (line, r.steps * line) if r.batch_first else (r.batch * line, line)
    # Strides of the series along steps and sequences, and of a direction; of a state along sequences, and a direction.
    across = r.directions * hidden
    series_t, series_b, series_d = (
        (across, r.steps * across, hidden) if r.batch_first else (r.batch * across, hidden, r.batch * hidden)
    )
    state_b, state_d = (across, hidden) if r.batch_first else (hidden, r.batch * hidden)

    def given(index: int, elements: int) -> Operand | None:
        return Operand("input", index, d * elements * stored) if call.optional(index) is not None else None

    def result(index: int, offset: int) -> Operand | None:
        return Operand("output", index, offset * stored) if index < len(call.outputs) else None

    ends = done == r.steps - 1
    lstm, gru = call.op == "LSTM", call.op == "GRU"
    args: list[Operand | Value | None] = [
        Operand("workspace", _PROJECTED, t * projected_t * wide),
        given(2, line * hidden),
        given(3, 2 * line),
        given(7, 3 * hidden) if lstm else None,
        source_input(4) if call.optional(4) is not None else None,
        Operand("workspace", _STATE + done % 2) if done else None,
        Operand("workspace", _STATE + (done + 1) % 2),
        given(5, state_d),
        given(6, state_d) if lstm else None,
        Operand("workspace", _MEMORY) if lstm else None,
        Operand("workspace", _UPDATE) if gru else None,
        Operand("workspace", _RESET) if gru else None,
        result(0, t * series_t + d * series_d),
        result(1, d * state_d) if ends else None,
        result(2, d * state_d) if ends and lstm else None,
        integers([projected_b, state_b, series_b, state_b, gates]),
        int64(t),
    ]
    rows = r.batch * hidden
    return [run_rows("kg_recurrent", text, args, rows, hidden, 1, 32) for text in direction.texts]
