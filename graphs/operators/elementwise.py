"""Elementwise operators: one row each, with the scalar CUDA C expression that a GPU kernel is generated from.

In an expression the operands are x, y, z, x3, x4, … (`operand_name`), already converted to their compute types: float
for float16, bfloat16 and float8, the element type itself otherwise. T is the compute type of input 0. The value is
converted to the output's dtype. Output 0 may take over an input of the same dtype and size, so a kernel must read all
of an element's operands before it writes that element.
"""

from __future__ import annotations

from collections.abc import Callable

from kgrun.graphs.dtypes import DTYPES, FLOATS, INTEGERS, NUMBERS, WIDE_FLOATS
from kgrun.graphs.operators import known, scalars
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, Scalar, TensorType, register
from kgrun.graphs.operators.scalar_code import Expression, literal, operand_name
from kgrun.graphs.operators.shapes import broadcast_shape, needs_dtype, same_dtype

Known = Callable[..., Scalar]

_BOOL = frozenset({"bool"})
_SIGNED = WIDE_FLOATS | {"int8", "int16", "int32", "int64"}
_MANY = 2**31 - 1


def _infer(result: str | None, value: Known | None) -> Callable[[OpCall], list[TensorType]]:
    """Inference for inputs of one dtype that broadcast; the output's dtype is theirs unless `result` names it."""

    def infer(call: OpCall) -> list[TensorType]:
        dtype = same_dtype(call, *range(len(call.inputs)))
        shape = broadcast_shape(call, [type_.shape for type_ in call.inputs if type_ is not None])
        out = TensorType(result or dtype, shape)
        return [known.elementwise(call, out, value) if value else out]

    return infer


def _op(
    name: str,
    cuda: Expression,
    dtypes: frozenset[str] = WIDE_FLOATS,
    *,
    inputs: int | tuple[int, int] = 1,
    result: str | None = None,
    value: Known | None = None,
    flops: int | None = 1,
    helpers: str = "",
    **attributes: Attribute,
) -> OpSchema:
    least, most = inputs if isinstance(inputs, tuple) else (inputs, inputs)
    takes_over = result is None or dtypes == _BOOL
    return OpSchema(
        name,
        "elementwise",
        (least, most),
        _infer(result, value),
        dtypes=dtypes,
        attributes=attributes,
        inplace=tuple(range(min(most, 2))) if takes_over else (),
        flops=_flops(flops) if flops else None,
        data={"cuda": cuda, "helpers": helpers},
    )


def _flops(each: int) -> Callable[[OpCall], int]:
    return lambda call: each * call.outputs[0].size


def _nested(function: str) -> Callable[[OpCall], str]:
    """`function(function(x, y), z)` over all operands."""

    def expression(call: OpCall) -> str:
        text = "x"
        for index in range(1, len(call.inputs)):
            text = f"{function}({text}, {operand_name(index)})"
        return text

    return expression


def _sum(call: OpCall) -> str:
    return " + ".join(operand_name(index) for index in range(len(call.inputs)))


def _clip(call: OpCall) -> str:
    text = "x"
    for index, name, function in ((1, "min", "kg_max"), (2, "max", "kg_min")):
        if call.optional(index) is not None:
            # The bound comes first: a NaN bound is ignored by neither, a NaN x is kept.
            text = f"{function}({text}, {operand_name(index)})"
        elif name in call.attributes:
            text = f"{function}({text}, {literal(call.attributes[name])})"
    return text


def _power(call: OpCall) -> str:
    kinds = [DTYPES[call.input(index).dtype].kind for index in (0, 1)]
    if kinds[0] == "float":
        return "pow(x, T(y))"
    return "T(pow(double(x), double(y)))" if kinds[1] == "float" else "kg_power(x, y)"


def _mod(call: OpCall) -> str:
    floating = DTYPES[call.input(0).dtype].kind == "float"
    if call.attributes["fmod"]:
        return "fmod(x, y)" if floating else "x % y"
    return "kg_float_mod(x, y)" if floating else "kg_int_mod(x, y)"


def _shrink(call: OpCall) -> str:
    bias, edge = (f"double({call.attributes[name]!r})" for name in ("bias", "lambd"))
    return f"T(double(x) < -{edge} ? double(x) + {bias} : double(x) > {edge} ? double(x) - {bias} : 0.0)"


def _is_inf(call: OpCall) -> str:
    tests = (("x > T(0)", "detect_positive"), ("x < T(0)", "detect_negative"))
    wanted = [test for test, name in tests if call.attributes[name]]
    return f"(x + x == x) && ({' || '.join(wanted)})" if wanted else "false"


def _gelu(call: OpCall) -> str:
    if call.attributes["approximate"] == "tanh":
        return "T(0.5) * x * (T(1) + tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)))"
    return "T(0.5) * x * (T(1) + erf(x * T(0.7071067811865476)))"


def _pow_infer(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, NUMBERS)
    out = TensorType(call.input(0).dtype, broadcast_shape(call, [call.input(0).shape, call.input(1).shape]))
    return [known.elementwise(call, out, scalars.power)]


def _where_infer(call: OpCall) -> list[TensorType]:
    dtype = same_dtype(call, 1, 2)
    out = TensorType(dtype, broadcast_shape(call, [call.input(index).shape for index in range(3)]))
    return [known.elementwise(call, out, lambda x, y, z: y if x else z)]


def _cast_infer(call: OpCall) -> list[TensorType]:
    to = call.input(1).dtype if call.op == "CastLike" else call.attributes["to"]
    out = TensorType(to, call.input(0).shape)
    if len(call.inputs) > 1:
        return [out]
    return [known.elementwise(call, out, lambda x: x)]


def _prelu_infer(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 1)
    x, slope = call.input(0), call.input(1)
    if broadcast_shape(call, [x.shape, slope.shape]) != x.shape:
        call.fail(f"PRelu: the slope's shape {list(slope.shape)} does not broadcast to {list(x.shape)}", "inputs", 1)
    return [TensorType(x.dtype, x.shape)]


def _clip_infer(call: OpCall) -> list[TensorType]:
    dtype = same_dtype(call, 0, 1, 2)
    for index in (1, 2):
        bound = call.optional(index)
        if bound is not None and bound.size != 1:
            call.fail(f"Clip: a bound is one number, input {index} has {bound.size}", "inputs", index)
    for name in ("min", "max"):
        if name in call.attributes:
            call.check_range(call.attributes[name], dtype, name)
    return [TensorType(dtype, call.input(0).shape)]


_F = Attribute("float")
_ARITHMETIC = (
    _op("Add", "x + y", NUMBERS, inputs=2, value=lambda x, y: x + y),
    _op("Sub", "x - y", NUMBERS, inputs=2, value=lambda x, y: x - y),
    _op("Mul", "x * y", NUMBERS, inputs=2, value=lambda x, y: x * y),
    _op("Div", "x / y", NUMBERS, inputs=2, value=scalars.divide),
    _op("Max", _nested("kg_max"), NUMBERS, inputs=(1, _MANY), value=scalars.largest, helpers=scalars.EXTREMES),
    _op("Min", _nested("kg_min"), NUMBERS, inputs=(1, _MANY), value=scalars.least, helpers=scalars.EXTREMES),
    _op("Sum", _sum, inputs=(1, _MANY)),
    _op("Mean", lambda call: f"({_sum(call)}) / T({len(call.inputs)})", inputs=(1, _MANY)),
    OpSchema(
        "Mod",
        "elementwise",
        (2, 2),
        lambda call: _infer(None, scalars.c_remainder if call.attributes["fmod"] else scalars.modulo)(call),
        dtypes=NUMBERS,
        attributes={"fmod": Attribute("int", 0)},
        inplace=(0, 1),
        flops=_flops(1),
        data={"cuda": _mod, "helpers": scalars.MODULO},
    ),
    OpSchema(
        "Pow",
        "elementwise",
        (2, 2),
        _pow_infer,
        dtypes=WIDE_FLOATS | {"int32", "int64"},
        inplace=(0,),
        flops=_flops(1),
        data={"cuda": _power, "helpers": scalars.POWER},
    ),
    OpSchema(
        "Clip",
        "elementwise",
        (1, 3),
        _clip_infer,
        dtypes=NUMBERS,
        attributes={"min": _F, "max": _F},
        inplace=(0,),
        flops=_flops(2),
        data={"cuda": _clip, "helpers": scalars.EXTREMES},
    ),
)
_UNARY = (
    _op("Neg", "-x", _SIGNED, value=lambda x: -x),
    _op("Abs", {"float": "fabs(x)", "int": "x < T(0) ? -x : x", "uint": "x"}, NUMBERS, value=abs),
    _op("Sign", "x != x ? x : T((x > T(0)) - (x < T(0)))", NUMBERS),
    _op("Floor", "floor(x)", value=scalars.floor),
    _op("Ceil", "ceil(x)", value=scalars.ceil),
    _op("Round", "rint(x)"),
    _op("Reciprocal", "T(1) / x"),
    _op("Sqrt", "sqrt(x)", value=scalars.square_root),
    *(_op(name, f"{name.lower()}(x)") for name in ("Exp", "Log", "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan")),
    *(_op(name, f"{name.lower()}(x)") for name in ("Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh")),
)
_ALPHA_1 = Attribute("float", 1.0)
_ACTIVATIONS = (
    _op("Relu", "x < T(0) ? T(0) : x", _SIGNED, value=lambda x: 0 if x < 0 else x),
    _op("Sigmoid", "T(1) / (T(1) + exp(-x))", flops=4),
    _op("Gelu", _gelu, flops=8, approximate=Attribute("string", "none", choices=("none", "tanh"))),
    _op(
        "HardSigmoid",
        "kg_max(T(0), kg_min(T(1), {alpha} * x + {beta}))",
        flops=4,
        helpers=scalars.EXTREMES,
        alpha=Attribute("float", 0.2),
        beta=Attribute("float", 0.5),
    ),
    _op("HardSwish", "x * kg_max(T(0), kg_min(T(1), x / T(6) + T(0.5)))", flops=5, helpers=scalars.EXTREMES),
    _op("LeakyRelu", "x < T(0) ? {alpha} * x : x", flops=2, alpha=Attribute("float", 0.01)),
    _op("Elu", "x < T(0) ? {alpha} * expm1(x) : x", flops=3, alpha=_ALPHA_1),
    _op(
        "Selu",
        "{gamma} * (x <= T(0) ? {alpha} * expm1(x) : x)",
        flops=4,
        alpha=Attribute("float", 1.6732632423543772),
        gamma=Attribute("float", 1.0507009873554805),
    ),
    _op("Celu", "x < T(0) ? {alpha} * expm1(x / {alpha}) : x", flops=4, alpha=_ALPHA_1),
    _op("Swish", "x / (T(1) + exp(-{alpha} * x))", flops=5, alpha=_ALPHA_1),
    _op("Mish", "x * tanh(fmax(x, T(0)) + log1p(exp(-fabs(x))))", flops=6),
    _op("Softplus", "x != x ? x : fmax(x, T(0)) + log1p(exp(-fabs(x)))", flops=5),
    _op("Softsign", "x / (T(1) + fabs(x))", flops=3),
    _op("ThresholdedRelu", "x > {alpha} || x != x ? x : T(0)", alpha=_ALPHA_1),
    _op(
        "Shrink", _shrink, NUMBERS - {"bfloat16"}, flops=2, bias=Attribute("float", 0.0), lambd=Attribute("float", 0.5)
    ),
    OpSchema(
        "PRelu",
        "elementwise",
        (2, 2),
        _prelu_infer,
        dtypes=WIDE_FLOATS | {"int32", "int64", "uint32", "uint64"},
        inplace=(0,),
        flops=_flops(2),
        data={"cuda": "x < T(0) ? x * y : x", "helpers": ""},
    ),
)
_COMPARED = NUMBERS | _BOOL
_LOGIC = (
    _op("Equal", "x == y", _COMPARED, inputs=2, result="bool", value=lambda x, y: x == y),
    _op("Greater", "x > y", NUMBERS, inputs=2, result="bool", value=lambda x, y: x > y),
    _op("GreaterOrEqual", "x >= y", NUMBERS, inputs=2, result="bool", value=lambda x, y: x >= y),
    _op("Less", "x < y", NUMBERS, inputs=2, result="bool", value=lambda x, y: x < y),
    _op("LessOrEqual", "x <= y", NUMBERS, inputs=2, result="bool", value=lambda x, y: x <= y),
    _op("And", "x && y", _BOOL, inputs=2, result="bool", value=lambda x, y: x and y),
    _op("Or", "x || y", _BOOL, inputs=2, result="bool", value=lambda x, y: x or y),
    _op("Xor", "x != y", _BOOL, inputs=2, result="bool", value=lambda x, y: x != y),
    _op("Not", "!x", _BOOL, result="bool", value=lambda x: not x),
    _op("IsNaN", "x != x", FLOATS, result="bool"),
    _op(
        "IsInf",
        _is_inf,
        FLOATS,
        result="bool",
        detect_negative=Attribute("int", 1),
        detect_positive=Attribute("int", 1),
    ),
    _op("BitwiseAnd", "x & y", INTEGERS, inputs=2, value=lambda x, y: x & y),
    _op("BitwiseOr", "x | y", INTEGERS, inputs=2, value=lambda x, y: x | y),
    _op("BitwiseXor", "x ^ y", INTEGERS, inputs=2, value=lambda x, y: x ^ y),
    _op("BitwiseNot", "~x", INTEGERS, value=lambda x: ~x),
    _op(
        "BitShift",
        lambda call: f"kg_shift_{call.attributes['direction'].lower()}(x, y)",
        INTEGERS,
        inputs=2,
        helpers=scalars.SHIFTS,
        direction=Attribute("string", required=True, choices=("LEFT", "RIGHT")),
    ),
)
# Cast: a float outside an integer's range gives an unspecified integer; to float8 it saturates unless saturate=0.
_CAST = {
    "saturate": Attribute("int", 1),
    "round_mode": Attribute("string", "up", choices=("up", "down", "nearest")),
}
_CHOICE = (
    OpSchema(
        "Where",
        "elementwise",
        (3, 3),
        _where_infer,
        dtypes=_BOOL,
        inplace=(1, 2),
        data={"cuda": "x ? y : z", "helpers": ""},
    ),
    OpSchema(
        "Cast",
        "elementwise",
        (1, 1),
        _cast_infer,
        attributes={"to": Attribute("dtype", required=True), **_CAST},
        view=lambda call: call.outputs[0].dtype == call.input(0).dtype,
        data={"cuda": "x", "helpers": ""},
    ),
    OpSchema(
        "CastLike",
        "elementwise",
        (2, 2),
        _cast_infer,
        attributes=_CAST,
        data={"cuda": "x", "helpers": "", "shape_only": frozenset({1})},
    ),
)
register(*_ARITHMETIC, *_UNARY, *_ACTIVATIONS, *_LOGIC, *_CHOICE)
