"""Dimension expressions: integers, names, `+ - * // %`, `min`, `max`, `cdiv`, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache

from kgrun.graphs.errors import GraphError, UsageError, did_you_mean

Expression = int | str

MAX_LENGTH = 1_000
MAX_NODES = 200
LIMIT = 1 << 63
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
_FUNCTIONS = ("min", "max", "cdiv")
_HELP = "an expression has integers, dimension names, + - * // %, min(), max(), cdiv() and parentheses"


def evaluate(expression: Expression, dims: Mapping[str, int]) -> int:
    """The value of `expression` under `dims`.

    Raises:
        GraphError: KG320 for a malformed expression, KG322 for a value that is no 64-bit integer or a division
            by zero.
        UsageError: KG220 for a name that has no value.
    """
    if isinstance(expression, int):
        return expression
    value = dims.get(expression)
    if value is not None:
        return value
    return _evaluate(parse(expression), dims, expression)


def names(expression: Expression) -> frozenset[str]:
    """The dimension names that `expression` uses."""
    if isinstance(expression, int):
        return frozenset()
    functions = {id(n.func) for n in ast.walk(parse(expression)) if isinstance(n, ast.Call)}
    return frozenset(n.id for n in ast.walk(parse(expression)) if isinstance(n, ast.Name) and id(n) not in functions)


@lru_cache(maxsize=65_536)
def parse(expression: str) -> ast.expr:
    """The checked syntax tree of `expression`; GraphError KG320 when it holds anything else than allowed."""
    if len(expression) > MAX_LENGTH:
        raise GraphError(f"expression is longer than {MAX_LENGTH} characters", code="KG320", help=_HELP)
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise GraphError(f"malformed expression {expression!r}", code="KG320", help=_HELP) from None
    for count, node in enumerate(ast.walk(tree)):
        if count > MAX_NODES or not _allowed(node):
            raise GraphError(f"expression {expression!r} is not allowed", code="KG320", help=_HELP)
    return tree


def _allowed(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=int() as value):
            return not isinstance(value, bool) and abs(value) < LIMIT
        case ast.BinOp(op=op):
            return type(op) in _OPERATORS
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name in _FUNCTIONS and (len(arguments) == 2 if name == "cdiv" else len(arguments) >= 1)
        case ast.UnaryOp(op=ast.USub()) | ast.USub() | ast.Name() | ast.Load():
            return True
    return type(node) in _OPERATORS


def _evaluate(node: ast.expr, dims: Mapping[str, int], whole: str) -> int:
    match node:
        case ast.Constant(value=int() as constant):
            value = constant
        case ast.Name(id=name):
            if name not in dims:
                raise UsageError(
                    f"dimension {name!r} is unbound",
                    code="KG220",
                    help=did_you_mean(name, dims) or f"pass --dim {name}=… or set dims.{name}.default",
                )
            value = dims[name]
        case ast.UnaryOp(operand=operand):
            value = -_evaluate(operand, dims, whole)
        case ast.BinOp(left=left, op=op, right=right):
            value = _binary(_OPERATORS[type(op)], _evaluate(left, dims, whole), _evaluate(right, dims, whole), whole)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            values = [_evaluate(a, dims, whole) for a in arguments]
            if name == "cdiv":
                value = _binary(name, values[0], values[1], whole)
            else:
                value = min(values) if name == "min" else max(values)
        case _:
            raise AssertionError(f"unchecked expression {whole!r}")
    if not -LIMIT <= value < LIMIT:
        raise GraphError(f"expression {whole!r} leaves the 64-bit range", code="KG322")
    return value


def _binary(operator: str, a: int, b: int, whole: str) -> int:
    if operator in ("//", "%", "cdiv") and b == 0:
        raise GraphError(f"division by zero in expression {whole!r}", code="KG322")
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
    return -(-a // b)
