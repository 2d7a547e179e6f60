"""Optimizers: new values of parameters from their gradients, for `inplace: {w_new: w}`.

Those of ai.onnx.preview.training take a rate, an update count, and then all parameters, all gradients, all states of
each kind; results come in the same order without the gradients. SGD and ApplyMomentum are in no ONNX set. A row says in
CUDA C how one element moves: from `x` (parameter), `g` (gradient), the states `v` and `h`, the rate `r` and the count
`t` to new values of `x`, `v` and `h`, in T. A result may be written over any tensor of its parameter.
"""

from __future__ import annotations

from collections.abc import Callable

from kgrun.graphs.dtypes import WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.scalar_code import literal
from kgrun.graphs.operators.shapes import like, needs_dtype, same_dtype

_TRAINING = "ai.onnx.preview.training"
_MANY = 2**31 - 1
_DOUBLES = frozenset({"float32", "float64"})
STATES = {"SGD": 0, "Momentum": 1, "Adagrad": 1, "Adam": 2}  # tensors kept a parameter


def tensors_of(call: OpCall) -> list[tuple[int, ...]]:
    """For each parameter: the positions of it, of its gradient and of its states among the inputs."""
    first, each = first_tensor(call), 2 + STATES[call.op]
    count = (len(call.inputs) - first) // each
    return [tuple(first + kind * count + index for kind in range(each)) for index in range(count)]


def results_of(call: OpCall) -> list[tuple[int, ...]]:
    """For each parameter: the positions of its new value and of its new states among the outputs."""
    count, kinds = len(tensors_of(call)), 1 + STATES[call.op]
    return [tuple(kind * count + index for kind in range(kinds)) for index in range(count)]


def overwritable(call: OpCall, result: int) -> frozenset[int]:
    """Positions of the inputs that output `result` may be written over: the tensors of its own parameter."""
    if call.op == "ApplyMomentum":
        return frozenset((0, 1, 3))
    pairs = zip(tensors_of(call), results_of(call), strict=True)
    return frozenset(position for tensors, results in pairs if result in results for position in tensors)


def first_tensor(call: OpCall) -> int:
    """How many inputs precede the parameters."""
    return 1 if call.op == "SGD" else 2


def _one_number(call: OpCall, position: int, allowed: frozenset[str]) -> None:
    needs_dtype(call, position, allowed)
    if call.input(position).size != 1:
        call.fail(f"{call.op}: input {position} is one number, got {call.input(position).size}", "inputs", position)


def _infer(call: OpCall) -> list[TensorType]:
    first, each = first_tensor(call), 2 + STATES[call.op]
    _one_number(call, 0, _DOUBLES)
    if first == 2:
        _one_number(call, 1, frozenset({"int64"}))
    if len(call.inputs) == first or (len(call.inputs) - first) % each:
        call.fail(f"{call.op}: {len(call.inputs) - first} tensors, a multiple of {each} is needed", "inputs")
    for positions in tensors_of(call):
        needs_dtype(call, positions[0], WIDE_FLOATS if call.op == "SGD" else _DOUBLES)
        same_dtype(call, *positions)
        for position in positions[1:]:
            if call.input(position).shape != call.input(positions[0]).shape:
                shapes = [list(call.input(p).shape) for p in (position, positions[0])]
                call.fail(f"{call.op}: shapes {shapes[0]} and {shapes[1]} differ", "inputs", position)
    parameters = tensors_of(call)
    kinds = range(1 + STATES[call.op])
    made = [like(call.input(positions[0])) for _ in kinds for positions in parameters]
    if call.output_count != len(made):
        call.fail(f"{call.op} gives {len(made)} outputs, got {call.output_count}", "outputs")
    return made


def _apply_momentum(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 1, 3)
    for position in (1, 3):
        if call.input(position).shape != call.input(0).shape:
            call.fail(f"ApplyMomentum: input {position} has not the variable's shape", "inputs", position)
    for position in (2, 4):
        _one_number(call, position, WIDE_FLOATS)
    return [like(call.input(0)), like(call.input(0))][: call.output_count]


def _regularized(call: OpCall) -> str:
    factor = call.attributes["norm_coefficient"]
    return f"g = {literal(factor)} * x + g;" if factor else ""


def sgd(call: OpCall) -> str:
    """x - r·g."""
    return f"{_regularized(call)} x = x - r * g;"


def momentum(call: OpCall) -> str:
    """A decayed sum of gradients, standard or Nesterov's; the first gradient counts whole."""
    alpha, beta = literal(call.attributes["alpha"]), literal(call.attributes["beta"])
    step = "v" if call.attributes["mode"] == "standard" else f"(g + {alpha} * v)"
    return f"{_regularized(call)} v = {alpha} * v + (t > 0 ? {beta} : T(1)) * g; x = x - r * {step};"


def adagrad(call: OpCall) -> str:
    """Steps divided by the root of the sum of squared gradients."""
    decay, epsilon = literal(call.attributes["decay_factor"]), literal(call.attributes["epsilon"])
    return f"{_regularized(call)} h = h + g * g; x = x - r / (T(1) + T(t) * {decay}) * g / (sqrt(h) + {epsilon});"


def adam(call: OpCall) -> str:
    """Steps from averages of gradients and their squares; powers of the decays are taken in double."""
    alpha, beta, epsilon, post = (
        call.attributes[name] for name in ("alpha", "beta", "epsilon", "norm_coefficient_post")
    )
    rate = f"T(t > 0 ? r * sqrt(1.0 - pow({beta!r}, (double)t)) / (1.0 - pow({alpha!r}, (double)t)) : (double)r)"
    shrink = f" x = {literal(1 - post)} * x;" if post else ""
    return (
        f"{_regularized(call)} v = {literal(alpha)} * v + {literal(1 - alpha)} * g;"
        f" h = {literal(beta)} * h + {literal(1 - beta)} * g * g;"
        f" x = x - {rate} * v / (sqrt(h) + {literal(epsilon)});{shrink}"
    )


def _flops(each: int) -> Callable[[OpCall], int]:
    return lambda call: each * sum(call.input(positions[0]).size for positions in tensors_of(call))


_COEFFICIENT = {"norm_coefficient": Attribute("float", 0.0)}
_EPSILON = Attribute("float", 1e-6)


def _training(
    name: str, rule: Callable[[OpCall], str], states: tuple[str, ...], flops: int, **attributes: Attribute
) -> OpSchema:
    return OpSchema(
        name,
        "optimizers",
        (3, _MANY),
        _infer,
        outputs=(1, _MANY),
        dtypes=_DOUBLES,
        attributes=_COEFFICIENT | attributes,
        flops=_flops(flops),
        data={"update": rule, "states": states, "overwritable": overwritable},
        domain="kgrun" if name == "SGD" else _TRAINING,
    )


_NEEDED = Attribute("float", required=True)
register(
    _training("SGD", sgd, (), 2),
    _training(
        "Momentum",
        momentum,
        ("v",),
        5,
        alpha=_NEEDED,
        beta=_NEEDED,
        mode=Attribute("string", required=True, choices=("standard", "nesterov")),
        norm_coefficient=_NEEDED,
    ),
    _training("Adagrad", adagrad, ("h",), 7, decay_factor=Attribute("float", 0.0), epsilon=_EPSILON),
    _training(
        "Adam",
        adam,
        ("v", "h"),
        12,
        alpha=Attribute("float", 0.9),
        beta=Attribute("float", 0.999),
        epsilon=_EPSILON,
        norm_coefficient_post=Attribute("float", 0.0),
    ),
    # (variable, accumulation, rate, gradient, momentum): variable and accumulation, updated where they lie (S40).
    OpSchema(
        "ApplyMomentum",
        "optimizers",
        (5, 5),
        _apply_momentum,
        outputs=(1, 2),
        dtypes=WIDE_FLOATS,
        attributes={"use_nesterov": Attribute("int", 0)},
        flops=lambda call: 4 * call.input(0).size,
        data={"updates": {0: 0, 1: 1}, "overwritable": overwritable},
        domain="kgrun",
    ),
)
