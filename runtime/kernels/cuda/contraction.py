"""Einsum on CUDA: inputs contracted pair by pair, as matrix products where their letters allow; Det by elimination.

A pair becomes one batched product of letters in both and the output (batches), in one and the output (rows, columns),
and in both alone (summed). Operands whose letters do not lie as a matrix are copied first. What is no product (one
input, diagonals, letters summed in one operand) runs through a kernel with a thread an output element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.contraction import equation
from kgrun.graphs.operators.shapes import Shape, strides_of
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.base import ClearOperand, CopyOperand, KernelCall, LibraryRoutine, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    Arguments,
    c_type,
    code,
    collapse,
    compute_type,
    int64,
    integers,
    launch,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.copies import strided_copy
from kgrun.runtime.kernels.cuda.linear import Product, multiplied


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand of a contraction: where it lies, and the step of each of its letters; size 1 has no letter."""

    operand: Operand
    steps: dict[str, int]
    diagonal: bool = False

    @property
    def letters(self) -> str:
        """Its letters."""
        return "".join(self.steps)


class _Plan:
    """Work and scratch of one Einsum, grown step by step."""

    def __init__(self, dtype: str, sizes: dict[str, int]) -> None:
        self.dtype, self.sizes = dtype, sizes
        self.work: list[KernelCall | LibraryRoutine | ClearOperand | CopyOperand] = []
        self.workspace: list[int] = []

    def shape(self, letters: str) -> Shape:
        return tuple(self.sizes[letter] for letter in letters)

    def scratch(self, letters: str) -> Factor:
        """A fresh contiguous tensor."""
        shape = self.shape(letters)
        self.workspace.append(max(prod(shape), 1) * itemsize(self.dtype))
        return Factor(Operand("workspace", len(self.workspace) - 1), dict(zip(letters, strides_of(shape), strict=True)))

    def contract(self, factors: Sequence[Factor], output: str, into: Operand) -> None:
        """The contraction of one or two factors, contiguous in the order of `output`, at `into`."""
        output = "".join(letter for letter in output if self.sizes[letter] != 1)
        if len(factors) == 2 and self._multiply(factors[0], factors[1], output, into):
            return
        self.work.append(_summed(factors, output, self.sizes, self.dtype, into))

    def _multiply(self, a: Factor, b: Factor, output: str, into: Operand) -> bool:
        alone = (set(a.letters) ^ set(b.letters)) - set(output)
        if a.diagonal or b.diagonal or alone:
            return False
        batch = "".join(letter for letter in output if letter in a.steps and letter in b.steps)
        rows = "".join(letter for letter in output if letter in a.steps and letter not in b.steps)
        columns = "".join(letter for letter in output if letter in b.steps and letter not in a.steps)
        inner = "".join(letter for letter in a.letters if letter in b.steps and letter not in output)
        if not inner:
            return False  # an outer product: nothing is summed
        if output == batch + columns + rows and output != batch + rows + columns:
            a, b, rows, columns = b, a, columns, rows
        order = batch + rows + columns
        a, b = self._as_matrix(a, batch, rows, inner), self._as_matrix(b, batch, inner, columns)
        made = into if order == output else self.scratch(order).operand
        m, n, k = (prod(self.shape(letters)) for letters in (rows, columns, inner))
        steps = [[factor.steps[letter] for letter in batch] for factor in (a, b)]
        sizes, (a_batch, b_batch) = collapse(self.shape(batch), *steps)
        a_steps = (self._step(a, rows) or k, self._step(a, inner) or 1)
        b_steps = (self._step(b, inner) or n, self._step(b, columns) or 1)
        p = Product(m, n, k, a_steps, b_steps, sizes, a_batch, b_batch, left=a.operand, right=b.operand, into=made)
        self.work += multiplied(p, TensorType(self.dtype, self.shape(order))).work
        if order != output:
            own = dict(zip(order, strides_of(self.shape(order)), strict=True))
            shape, strides = self.shape(output), [own[letter] for letter in output]
            self.work += strided_copy(into, made, shape, strides_of(shape), strides, itemsize(self.dtype))
        return True

    def _as_matrix(self, factor: Factor, batch: str, first: str, second: str) -> Factor:
        """`factor`, copied to contiguous scratch unless each group of letters walks memory in one step."""
        if self._step(factor, first) is not None and self._step(factor, second) is not None:
            return factor
        copied = self.scratch(batch + first + second)
        strides = [factor.steps[letter] for letter in copied.steps]
        shape = self.shape(copied.letters)
        width = itemsize(self.dtype)
        self.work += strided_copy(copied.operand, factor.operand, shape, strides_of(shape), strides, width)
        return copied

    def _step(self, factor: Factor, letters: str) -> int | None:
        """The one step that walks `letters` of a factor in order, 0 where there are none; None if no step does."""
        sizes, (steps,) = collapse(self.shape(letters), [factor.steps[letter] for letter in letters])
        return steps[0] if len(sizes) == 1 else None


@on_cuda("Einsum")
def _einsum(call: OpCall) -> Lowered:
    found, out = equation(call), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    plan = _Plan(out.dtype, found.sizes)
    left = [_factor(term, call.input(i).shape, source_input(i)) for i, term in enumerate(found.terms)]
    while len(left) > 2:
        needed = set(found.output).union(*(factor.letters for factor in left[2:]))
        kept = "".join(dict.fromkeys(letter for factor in left[:2] for letter in factor.letters if letter in needed))
        made = plan.scratch(kept)
        plan.contract(left[:2], kept, made.operand)
        left = [made, *left[2:]]
    plan.contract(left, found.output, target())
    return Lowered(tuple(plan.work), tuple(plan.workspace))


def _factor(term: str, shape: Shape, operand: Operand) -> Factor:
    steps: dict[str, int] = {}
    for letter, size, stride in zip(term, shape, strides_of(shape), strict=True):
        if size != 1:
            steps[letter] = steps.get(letter, 0) + stride
    return Factor(operand, steps, len(set(term)) != len(term))


def _summed(factors: Sequence[Factor], output: str, sizes: dict[str, int], dtype: str, into: Operand) -> KernelCall:
    """A launch that sums products of the factors' elements, one thread an output element."""
    summed = "".join(dict.fromkeys(letter for f in factors for letter in f.letters if letter not in output))
    count, rank, inner = len(factors), max(len(output), 1), max(len(summed), 1)
    loads = " * ".join(f"(T)p{f}[o{f} + s{f}]" for f in range(count))
    pointers = "".join(f"const E* p{f}, " for f in range(count))
    walk = f"""long long {", ".join(f"{{0}}{f} = 0" for f in range(count))};
#pragma unroll
    for (int axis = {{1}} - 1; axis >= 0; --axis) {{{{
      const long long at = rest % g.{{2}}[axis];
      rest /= g.{{2}}[axis];
      {" ".join(f"{{0}}{f} += at * g.{{2}}_step[{f}][axis];" for f in range(count))}
    }}}}"""
    text = f"""{prelude([dtype])}typedef {c_type(dtype)} E;
typedef {compute_type(dtype)} T;
struct Layout {{ long long outer[{rank}], inner[{inner}], outer_step[{count}][{rank}], inner_step[{count}][{inner}]; }};
extern "C" __global__ void __launch_bounds__(256) kg_einsum(
    {pointers}E* q, const Layout g, long long terms, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    long long rest = i;
    {walk.format("o", rank, "outer")}
    T s = 0;
    for (long long k = 0; k < terms; ++k) {{
      long long rest = k;
      {walk.format("s", inner, "inner")}
      s += {loads};
    }}
    q[i] = kg_to<E>(s);
  }}
}}
"""
    outer_sizes, inner_sizes = ([sizes[letter] for letter in letters] or [1] for letters in (output, summed))
    layout = [*outer_sizes, *inner_sizes]
    layout += [f.steps.get(letter, 0) for f in factors for letter in output or "?"]
    layout += [f.steps.get(letter, 0) for f in factors for letter in summed or "?"]
    args: Arguments = (*(factor.operand for factor in factors), into, integers(layout))
    total = prod(outer_sizes)
    return launch(code("kg_einsum", text), (*args, int64(prod(inner_sizes)), int64(total)), total)


@on_cuda("Det")
def _det(call: OpCall) -> Lowered:
    source, out = call.input(0), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    n, kind = source.shape[-1], compute_type(source.dtype)
    # A thread a matrix: Gaussian elimination with row pivots, in scratch of the type it is computed in.
    text = f"""{prelude([source.dtype])}typedef {c_type(source.dtype)} E;
typedef {kind} T;
extern "C" __global__ void __launch_bounds__(256) kg_det(const E* p, E* q, T* scratch, long long n, long long count) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += grid) {{
    T* a = scratch + i * n * n;
    for (long long k = 0; k < n * n; ++k) a[k] = (T)p[i * n * n + k];
    T result = 1;
    for (long long column = 0; column < n; ++column) {{
      long long pivot = column;
      for (long long row = column + 1; row < n; ++row)
        if (fabs(a[row * n + column]) > fabs(a[pivot * n + column])) pivot = row;
      const T lead = a[pivot * n + column];
      result *= pivot == column ? lead : -lead;
      if (lead == T(0)) break;
      for (long long k = column; k < n && pivot != column; ++k) {{
        const T kept = a[column * n + k];
        a[column * n + k] = a[pivot * n + k];
        a[pivot * n + k] = kept;
      }}
      for (long long row = column + 1; row < n; ++row) {{
        const T factor = a[row * n + column] / lead;
        for (long long k = column; k < n; ++k) a[row * n + k] -= factor * a[column * n + k];
      }}
    }}
    q[i] = kg_to<E>(result);
  }}
}}
"""
    scratch = Operand("workspace", 0)
    args: Arguments = (source_input(0), target(), scratch, int64(n), int64(out.size))
    width = 8 if kind == "double" else 4
    return Lowered((launch(code("kg_det", text), args, out.size),), (max(source.size * width, 8),))
