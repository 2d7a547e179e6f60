"""Contractions: Einsum, and Det."""

from __future__ import annotations

import string
from math import prod

from kgrun.graphs.dtypes import NUMBERS, WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import same_dtype
from kgrun.graphs.records import dataclass

_MANY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Equation:
    """An Einsum with nothing left implicit.

    Attributes:
        terms: one letter an axis of each input; the axes of an ellipsis have letters of their own.
        output: the letters of the output.
        sizes: the size of every letter; an input whose axis has 1 is repeated along it.
    """

    terms: tuple[str, ...]
    output: str
    sizes: dict[str, int]


def equation(call: OpCall) -> Equation:
    """The equation of an Einsum; InferenceError for one that does not fit its inputs."""
    text = call.attributes["equation"].replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(call.inputs):
        call.fail(f"Einsum: {len(terms)} terms for {len(call.inputs)} inputs", "attributes", "equation")
    ranks = [
        len(call.input(index).shape) - len(term.replace("...", "")) for index, term in enumerate(terms) if "..." in term
    ]
    rank = max(ranks, default=0)
    spare = "".join(letter for letter in string.ascii_letters if letter not in text)[:rank]
    named = [_named(call, term, len(call.input(index).shape), spare) for index, term in enumerate(terms)]
    if arrow:
        output = right.replace("...", spare)
    else:
        letters = [letter for term in terms for letter in term.replace("...", "")]
        output = spare + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    sizes: dict[str, int] = {}
    for index, term in enumerate(named):
        for letter, size in zip(term, call.input(index).shape, strict=True):
            known = sizes.setdefault(letter, size)
            if known != size and (1 not in (known, size) or term.count(letter) > 1):
                call.fail(f"Einsum: {letter!r} is both {known} and {size}", "inputs", index)
            sizes[letter] = size if known == 1 else known
    if any(letter not in sizes for letter in output) or len(set(output)) != len(output):
        call.fail(f"Einsum: no output {right!r} of {left!r}", "attributes", "equation")
    return Equation(tuple(named), output, sizes)


def _named(call: OpCall, term: str, rank: int, spare: str) -> str:
    """A term with letters for its ellipsis, the last of `spare`: shapes are aligned at their ends."""
    head, dots, tail = term.partition("...")
    hidden = rank - len(head + tail)
    letters = head + spare[len(spare) - hidden :] * bool(hidden) + tail if dots and hidden >= 0 else term
    if len(letters) != rank or not all(letter in string.ascii_letters for letter in letters):
        call.fail(f"Einsum: {term!r} for an input of rank {rank}", "attributes", "equation")
    return letters


def _einsum(call: OpCall) -> list[TensorType]:
    dtype, found = same_dtype(call, *range(len(call.inputs))), equation(call)
    return [TensorType(dtype, tuple(found.sizes[letter] for letter in found.output))]


def _einsum_flops(call: OpCall) -> int:
    found = equation(call)
    return len(found.terms) * prod(found.sizes.values())


def _det(call: OpCall) -> list[TensorType]:
    source = call.input(0)
    if len(source.shape) < 2 or source.shape[-1] != source.shape[-2]:
        call.fail(f"Det takes square matrices, got {list(source.shape)}", "inputs", 0)
    return [TensorType(source.dtype, source.shape[:-2])]


register(
    OpSchema(
        "Einsum",
        "contraction",
        (1, _MANY),
        _einsum,
        dtypes=NUMBERS,
        attributes={"equation": Attribute("string", required=True)},
        flops=_einsum_flops,
    ),
    OpSchema(
        "Det",
        "contraction",
        (1, 1),
        _det,
        dtypes=WIDE_FLOATS,
        flops=lambda call: 2 * call.input(0).size * call.input(0).shape[-1] // 3,
    ),
)
