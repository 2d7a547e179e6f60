"""Fourier transforms on CUDA: fast ones, of any length.

Lengths of factors up to 97 take passes by their factors (J. W. Cooley and J. W. Tukey, 1965); others are a convolution
with a chirp, by transforms of a smooth length (L. I. Bluestein, 1970). Both take O(n log n) steps. Real signals are
transformed as complex ones.

Precision is that of the CPU device, whose numpy transforms in float64 and rounds once, but inverts complex numbers in
their own precision. There factors come in numpy's order and products are rounded one by one, so that inverses in
float32 agree with numpy's to the bit where all factors are at most 11 and neither side of a spectrum is left out.
ONNX's node tests depend on both: their expected values are numpy's, and some that ought to be 0 are its errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.signal import Transform, transform_of
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand
from kgrun.runtime.kernels.cuda.common import (
    MOST_BLOCKS,
    c_type,
    code,
    compute_type,
    cuda_file,
    index_type,
    int64,
    launch,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.fourier_plan import Stage, direct, smooth_length, stages

_UNROLLED = 13  # larger factors leave a butterfly's numbers in shared memory
_NO_CONTRACTION = ("--fmad=false",)
_BUFFER = "(row * N + at) * INNER + column"
_FROM_BUFFER = f"return g.from[{_BUFFER}];"
_TO_BUFFER = f"g.to[{_BUFFER}] = v;"
# Between the two transforms of a convolution: the second is an inverse one, so it takes swapped parts.
_TIMES_SPECTRUM = f"return kg_swapped(g.from[{_BUFFER}] * g.spectrum[at]);"
# The chirp's conjugate, at -LENGTH < at < LENGTH, of period N.
_CHIRP = """const Index k = at < LENGTH ? at : N - at;
  if (k >= LENGTH) return {T(0), T(0)};
  return {g.chirp[k].re, -g.chirp[k].im};"""
_TO_SPECTRUM = "g.to[at] = (T(1) / T(N)) * v;"


def transform(call: OpCall) -> Lowered:
    """The launches of a DFT or STFT."""
    if call.outputs[0].size == 0:
        return Lowered(())
    work = _Work(call, transform_of(call))
    return work.direct() if direct(work.found.length) else work.convolved()


@dataclass(frozen=True, slots=True)
class _Step:
    """A stage, and how it loads and stores its numbers."""

    stage: Stage
    load: str
    store: str


class _Work:
    """The launches of one operator, and their scratch."""

    def __init__(self, call: OpCall, found: Transform) -> None:
        self.found, self.call = found, call
        self.dtype = call.input(0).dtype
        self.rows = found.outer * found.frames
        narrow = found.inverse and call.input(0).shape[-1] == 2
        self.real = compute_dtype(self.dtype) if narrow else "float64"
        self.number_bytes = 2 * itemsize(self.real)
        self.workspace: list[int] = []

    def direct(self) -> Lowered:
        """Passes by the factors of the length."""
        n, found = self.found.length, self.found
        roots = self._scratch(n)
        steps = self._steps(n, found.inner, self.rows, self._load(chirped=False), self._store(chirped=False))
        work = self._launches(n, found.inner, self.rows, steps, {"roots": roots})
        return Lowered((self._roots(roots, n, n), *work), tuple(self.workspace))

    def convolved(self) -> Lowered:
        """A convolution with a chirp: x[j]·w^(j²/2) with w^(-j²/2), times w^(k²/2), since jk = (j² + k² - (k-j)²)/2."""
        n, found = self.found.length, self.found
        m = smooth_length(2 * n - 1)
        places = {"roots": self._scratch(m), "chirp": self._scratch(n), "spectrum": self._scratch(m)}
        tables = [self._roots(places["roots"], m, m), self._roots(places["chirp"], n, 2 * n, "i * i % n")]
        steps = self._steps(m, 1, 1, _CHIRP, _TO_SPECTRUM)
        work = self._launches(m, 1, 1, steps, places | {"to": places["spectrum"]})
        steps = self._steps(m, found.inner, self.rows, self._load(chirped=True), _TO_BUFFER)
        steps += self._steps(m, found.inner, self.rows, _TIMES_SPECTRUM, self._store(chirped=True))
        work += self._launches(m, found.inner, self.rows, steps, places)
        return Lowered((*tables, *work), tuple(self.workspace))

    def _scratch(self, count: int) -> Operand:
        self.workspace.append(count * self.number_bytes)
        return Operand("workspace", len(self.workspace) - 1)

    def _roots(self, to: Operand, count: int, n: int, power: str = "i") -> KernelCall:
        """The first `count` numbers e^(-2πi·power/n), once a run."""
        text = f"""typedef {c_type(self.real)} T;
{cuda_file("roots.cuh")}
extern "C" __global__ void kg_roots(KgComplex* q, long long n, long long count) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += grid)
    q[i] = kg_root({power}, n);
}}
"""
        return launch(code("kg_roots", text), (to, int64(n), int64(count)), count)

    def _steps(self, n: int, inner: int, rows: int, load: str, store: str) -> list[_Step]:
        cut = stages(n, inner, rows, self.number_bytes)
        last = len(cut) - 1
        return [
            _Step(stage, _FROM_BUFFER if i else load, store if i == last else _TO_BUFFER) for i, stage in enumerate(cut)
        ]

    def _launches(
        self, n: int, inner: int, rows: int, steps: Sequence[_Step], places: dict[str, Operand]
    ) -> list[KernelCall]:
        """One launch a step. Numbers go through two buffers by turns, from the operator's input to its output."""
        buffers = [self._scratch(n * inner * rows) for _ in range(min(len(steps) - 1, 2))]
        work = []
        for i, step in enumerate(steps):
            own = {"from": buffers[(i - 1) % 2]} if i else {}
            if i < len(steps) - 1:
                own["to"] = buffers[i % 2]
            work.append(self._launch(n, inner, rows, step, places | own))
        return work

    def _launch(self, n: int, inner: int, rows: int, step: _Step, places: dict[str, Operand]) -> KernelCall:
        found, stage = self.found, step.stage
        total = rows * inner * stage.before * stage.after
        index = index_type((found.outer * found.size * found.inner * 2, rows * inner * n * 2))
        weights = source_input(2) if self.call.op == "STFT" and self.call.optional(2) is not None else None
        scratch = (places.get(name) for name in ("from", "roots", "chirp", "spectrum", "to"))
        sizes = (found.frames, found.size, found.step, found.count, found.bins, total)
        args = (source_input(0), weights, target(), *scratch, *map(int64, sizes))
        text = self._text(n, inner, index, step)
        kernel = code("kg_fourier", text, _NO_CONTRACTION)
        grid = (min(-(-total // stage.lanes), MOST_BLOCKS), 1, 1)
        return KernelCall(kernel, args, grid, (stage.threads, 1, 1))

    def _text(self, n: int, inner: int, index: str, step: _Step) -> str:
        stage = step.stage
        tile = stage.radix * stage.lanes
        flags = f"LOAD_LANES = {_bool(stage.load_lanes)}, STORE_LANES = {_bool(stage.store_lanes)}"
        return f"""{prelude([self.dtype])}typedef {c_type(self.dtype)} E;
typedef {compute_type(self.dtype)} P;
typedef {c_type(self.real)} T;
typedef {index} Index;
constexpr Index N = {n}, LENGTH = {self.found.length}, BEFORE = {stage.before}, AFTER = {stage.after}, INNER = {inner};
constexpr int RADIX = {stage.radix}, LANES = {stage.lanes}, THREADS = {stage.threads};
constexpr bool {flags};
{cuda_file("roots.cuh")}{cuda_file("fourier.cuh")}
__device__ __forceinline__ KgComplex kg_load(const KgSignal& g, Index row, Index at, Index column) {{
  {step.load}
}}
__device__ __forceinline__ void kg_store(const KgSignal& g, Index row, Index at, Index column, KgComplex v) {{
  {step.store}
}}
extern "C" __global__ void __launch_bounds__({stage.threads}) kg_fourier(
    const E* signal, const E* weights, E* result, const KgComplex* from, const KgComplex* roots,
    const KgComplex* chirp, const KgComplex* spectrum, KgComplex* to,
    long long frames, long long size, long long step, long long count, long long bins, long long total) {{
  __shared__ KgComplex tile[{tile + tile // 16}];
  const KgSignal g = {{signal, weights, result, from, roots, chirp, spectrum, to,
                      (Index)frames, (Index)size, (Index)step, (Index)count, (Index)bins}};
  for (long long first = blockIdx.x * (long long)LANES; first < total; first += gridDim.x * (long long)LANES) {{
    const KgGroups groups = {{g, tile, (Index)first, (Index)total}};
    {_passes(stage.factors)}
  }}
}}
"""

    def _load(self, *, chirped: bool) -> str:
        """Number `at` of a frame: weighed, mirrored where half of a spectrum is given, zero behind the signal's end."""
        found = self.found
        shape = self.call.input(0).shape
        parts = 1 if len(shape) == 2 and self.call.op == "STFT" else shape[-1]
        lines = [
            # Of a one-sided spectrum the other side is the mirror's conjugate.
            f"const bool mirrored = {'2 * at > LENGTH' if found.real else 'false'};",
            "const Index i = mirrored ? LENGTH - at : at;",
            "if (at >= LENGTH || i >= g.count) return {T(0), T(0)};",
            "const Index place = (row / g.frames * g.size + row % g.frames * g.step + i) * INNER + column;",
            f"P re = (P)g.signal[place * {parts}], im = {'(P)g.signal[place * 2 + 1]' if parts == 2 else 'P(0)'};",
            "if (g.weights) re *= (P)g.weights[i], im *= (P)g.weights[i];",
            "KgComplex v = {T(re), T(im)};",
        ]
        if found.real:
            lines.append("v.im = i == 0 || 2 * i == LENGTH ? T(0) : mirrored ? -v.im : v.im;")
        if found.inverse:
            lines.append("v = kg_swapped(v);")
        lines.append(f"return v{' * g.chirp[at]' if chirped else ''};")
        return "\n  ".join(lines)

    def _store(self, *, chirped: bool) -> str:
        """Result `at` of a frame, where it is asked for."""
        found = self.found
        lines = ["if (at >= g.bins) return;"]
        if chirped:
            lines.append("v = kg_swapped(v) * g.chirp[at];")
        if found.inverse:
            lines.append("v = (T(1) / T(LENGTH)) * kg_swapped(v);")
        lines.append("const Index place = (row * g.bins + at) * INNER + column;")
        if found.real:
            return "\n  ".join([*lines, "g.result[place] = kg_to<E>(v.re);"])
        lines += ["g.result[2 * place] = kg_to<E>(v.re);", "g.result[2 * place + 1] = kg_to<E>(v.im);"]
        return "\n  ".join(lines)


def _passes(given: Sequence[int]) -> str:
    """The calls of a stage's passes; a transform of one number is a copy."""
    done, calls = 1, []
    for i, factor in enumerate(given or (1,)):
        name = "kg_pass" if factor <= _UNROLLED else "kg_prime_pass"
        calls.append(f"{name}<{factor}, {done}, {_bool(i == 0)}, {_bool(i >= len(given) - 1)}>(groups);")
        done *= factor
    return "\n    ".join(calls)


def _bool(value: bool) -> str:
    return str(value).lower()
