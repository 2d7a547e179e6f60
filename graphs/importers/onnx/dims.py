"""Dimensions of a model's inputs: named, anonymous, or expressions, as kgrun writes them."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm

from kgrun.graphs.errors import KgrunError, UsageError, did_you_mean
from kgrun.graphs.expressions import evaluate, parse
from kgrun.graphs.expressions import names as names_in

_RESERVED = frozenset({"min", "max", "cdiv"})
# What an unbound dimension is taken for while ranks and dtypes are inferred.
_GUESS_FIRST, _GUESS = 1, 64


@dataclass(slots=True)
class Dims:
    """The dimensions met so far.

    Attributes:
        bound: values by name, of the model or of kgrun.
        names: kgrun's name by the model's.
        docs: the model's name by kgrun's, where they differ.
    """

    bound: Mapping[str, int]
    names: dict[str, str] = field(default_factory=dict)
    docs: dict[str, str] = field(default_factory=dict)
    guesses: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def entry(self, text: str, place: str, axis: int) -> int | str:
        """A shape entry for the model's dimension `text` ("" for an anonymous one) at `axis` of input `place`."""
        name = text.strip()
        expression = _expression(name, self._name) if name and not name.isidentifier() else None
        if expression is not None:
            if all(each in self.values for each in names_in(expression)):
                return evaluate(expression, self.values)
            return expression
        known = self._name(name if re.search(r"\w", name) else f"{place}_{axis}", text.strip())
        self.guesses.setdefault(known, _GUESS_FIRST if axis == 0 else _GUESS)
        return self.values.get(known, known)

    def expression(self, text: str) -> str | None:
        """`text` in kgrun's syntax if all its names are dimensions of inputs; None otherwise."""
        try:
            found = _expression(text.strip(), lambda name: self.names[name])
        except KeyError:
            return None
        return found

    @property
    def values(self) -> dict[str, int]:
        """Bound dimensions by kgrun's name."""
        return {new: self.bound[each] for old, new in self.names.items() for each in (old, new) if each in self.bound}

    def guess(self, entry: int | str) -> int:
        """A size to infer with."""
        if isinstance(entry, int):
            return entry
        return max(evaluate(entry, {**dict.fromkeys(names_in(entry), _GUESS), **self.guesses, **self.values}), 1)

    def check(self) -> None:
        """UsageError KG221 for a bound name that is no dimension of the model."""
        known = {*self.names, *self.names.values()}
        for name in self.bound:
            if name not in known:
                listed = ", ".join(self.names.values())
                help = did_you_mean(name, known) or (f"dimensions: {listed}" if listed else "it has none")
                raise UsageError(f"the model has no dimension {name!r}", code="KG221", help=help)

    def _name(self, text: str, doc: str | None = None) -> str:
        """kgrun's name for the model's dimension `text`: an identifier, used for no other."""
        if text not in self.names:
            name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "d"
            if not name.isidentifier() or keyword.iskeyword(name) or name in _RESERVED:
                name = f"d_{name}"
            taken, plain, count = set(self.names.values()), name, 2
            while name in taken:
                name, count = f"{plain}_{count}", count + 1
            self.names[text] = name
            said = text if doc is None else doc
            if said and name != said:
                self.docs[name] = said
        return self.names[text]


def _expression(text: str, name: Callable[[str], str]) -> str | None:
    """`text`, as sympy and ONNX exporters print expressions, in kgrun's syntax; None for anything else.

    Division is exact there and rounds down here, so quotients are only taken inside floor() and ceiling().
    """
    try:
        tree = ast.parse(text.replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not any(isinstance(node, (ast.BinOp, ast.Call)) for node in ast.walk(tree)):
        return None
    try:
        found = _whole(_linear(tree, name))
        parse(found)
    except (_Unreadable, KgrunError):
        return None
    return found


class _Unreadable(Exception):
    """An expression that kgrun cannot write."""


# A sum of integer expressions with rational factors; "" stands for the constant.
_Sum = dict[str, Fraction]


def _linear(node: ast.expr, name: Callable[[str], str]) -> _Sum:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return {"": Fraction(value)}
        case ast.Name(id=text):
            return {name(text): Fraction(1)}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _scaled(_linear(operand, name), Fraction(-1))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            total = dict(_linear(left, name))
            for term, factor in _linear(right, name).items():
                total[term] = total.get(term, Fraction(0)) + (factor if isinstance(op, ast.Add) else -factor)
            return total
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _product(_linear(left, name), _linear(right, name))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            divisor = _linear(right, name)
            if set(divisor) != {""} or not divisor[""]:
                raise _Unreadable
            return _scaled(_linear(left, name), 1 / divisor[""])
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return {f"({_whole(_linear(left, name))}) // ({_whole(_linear(right, name))})": Fraction(1)}
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return {f"({_whole(_linear(left, name))}) % ({_whole(_linear(right, name))})": Fraction(1)}
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
            return _call(function.lower(), [_linear(each, name) for each in arguments])
    raise _Unreadable


def _call(function: str, arguments: list[_Sum]) -> _Sum:
    if function in ("floor", "ceiling", "ceil") and len(arguments) == 1:
        total, bottom = _over_common(arguments[0])
        if bottom == 1:
            return arguments[0]
        text = f"({total}) // {bottom}" if function == "floor" else f"cdiv({total}, {bottom})"
        return {text: Fraction(1)}
    whole = [_whole(each) for each in arguments]
    if function in ("max", "min") and whole:
        return {f"{function}({', '.join(whole)})": Fraction(1)}
    if function == "mod" and len(whole) == 2:
        return {f"({whole[0]}) % ({whole[1]})": Fraction(1)}
    raise _Unreadable


def _scaled(terms: _Sum, factor: Fraction) -> _Sum:
    return {term: each * factor for term, each in terms.items()}


def _product(a: _Sum, b: _Sum) -> _Sum:
    if set(b) == {""}:
        return _scaled(a, b[""])
    if set(a) == {""}:
        return _scaled(b, a[""])
    return {f"({_whole(a)}) * ({_whole(b)})": Fraction(1)}


def _whole(terms: _Sum) -> str:
    text, bottom = _over_common(terms)
    if bottom != 1:
        raise _Unreadable
    return text


def _over_common(terms: _Sum) -> tuple[str, int]:
    """The sum as (integer expression) / (positive integer)."""
    bottom = lcm(*(factor.denominator for factor in terms.values()))
    text = ""
    for term, factor in sorted(terms.items(), key=lambda item: item[0] == ""):
        count = int(factor * bottom)
        if count == 0:
            continue
        plain = term if text or count > 0 else _grouped(term)  # a leading minus binds tighter than //
        size = str(abs(count)) if term == "" else plain if abs(count) == 1 else f"{abs(count)} * {_grouped(term)}"
        text += (" - " if count < 0 else " + ") + size if text else ("-" if count < 0 else "") + size
    return text or "0", bottom


def _grouped(term: str) -> str:
    return term if term.isidentifier() else f"({term})"
