"""Recurrent networks: RNN, GRU, LSTM in every direction and layout, with sequences of different lengths.

Gates are those of ONNX in its order: RNN i, GRU z r h, LSTM i o f c. The activations that a direction takes are f, g
and h in ONNX's formulas.
"""

from __future__ import annotations

from kgrun.graphs.dtypes import WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import Shape, needs_dtype, same_dtype
from kgrun.graphs.records import dataclass

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
# name: default alpha and beta; None where the function has none.
ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "Relu": (None, None),
    "Tanh": (None, None),
    "Sigmoid": (None, None),
    "Softsign": (None, None),
    "Softplus": (None, None),
    "LeakyRelu": (0.01, None),
    "ThresholdedRelu": (1.0, None),
    "Elu": (1.0, None),
    "Affine": (1.0, 0.0),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
}


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of ACTIVATIONS with its constants; 0 where it has none."""

    name: str
    alpha: float
    beta: float


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The sizes of a call and what each direction does.

    Attributes:
        reverse: whether a direction goes from the last step to the first.
        activations: of each direction.
        batch_first: layout 1.
    """

    steps: int
    batch: int
    inputs: int
    hidden: int
    reverse: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    batch_first: bool

    @property
    def directions(self) -> int:
        """One or two."""
        return len(self.reverse)


def recurrence(call: OpCall) -> Recurrence:
    """Sizes and activations of an RNN, GRU or LSTM call; InferenceError for what does not fit."""
    x, r, batch_first = call.input(0).shape, call.input(2).shape, call.attributes["layout"] == 1
    if len(x) != 3 or len(r) != 3:
        index, found = (0, x) if len(x) != 3 else (2, r)
        call.fail(f"{call.op}: input {index} has shape {list(found)}, three axes are needed", "inputs", index)
    steps, batch = (x[1], x[0]) if batch_first else (x[0], x[1])
    if steps == 0:
        call.fail(f"{call.op} over no steps", "inputs", 0)
    direction = call.attributes["direction"]
    reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    return Recurrence(steps, batch, x[2], r[2], reverse, _activations(call, len(reverse)), batch_first)


def _activations(call: OpCall, directions: int) -> tuple[tuple[Activation, ...], ...]:
    each = len(_DEFAULTS[call.op])
    names = call.attributes.get("activations") or _DEFAULTS[call.op] * directions
    if call.op == "RNN":
        names = names[:directions]  # ONNX's default names two
    if len(names) != each * directions:
        call.fail(f"{call.op}: {len(names)} activations, {each * directions} are needed", "attributes", "activations")
    alphas, betas = (list(call.attributes.get(f"activation_{name}", ())) for name in ("alpha", "beta"))
    known = {name.lower(): name for name in ACTIVATIONS}
    found = []
    for name in names:
        if name.lower() not in known:
            call.fail(f"{call.op}: there is no activation {name!r}", "attributes", "activations")
        own = known[name.lower()]
        # Constants are listed in order, for the functions that have them.
        constants = [
            0.0 if default is None else given.pop(0) if given else default
            for default, given in zip(ACTIVATIONS[own], (alphas, betas), strict=True)
        ]
        found.append(Activation(own, *constants))
    return tuple(tuple(found[first : first + each]) for first in range(0, len(found), each))


def _infer(call: OpCall) -> list[TensorType]:
    positions = [0, 1, 2, 3, 5, *([6, 7] if call.op == "LSTM" else [])]
    dtype = same_dtype(call, *positions)
    needs_dtype(call, 4, ("int32",))
    r = recurrence(call)
    gates, hidden, directions = GATES[call.op], r.hidden, r.directions
    state: Shape = (r.batch, directions, hidden) if r.batch_first else (directions, r.batch, hidden)
    wanted = {
        1: (directions, gates * hidden, r.inputs),
        2: (directions, gates * hidden, hidden),
        3: (directions, 2 * gates * hidden),
        4: (r.batch,),
        5: state,
        6: state,
        7: (directions, 3 * hidden),
    }
    for position, shape in wanted.items():
        found = call.optional(position)
        if found is not None and found.shape != shape:
            message = f"{call.op}: input {position} has shape {list(found.shape)}, not {list(shape)}"
            call.fail(message, "inputs", position)
    if call.attributes.get("hidden_size", hidden) != hidden:
        call.fail(f"{call.op}: hidden_size differs from the {hidden} of the weights", "attributes", "hidden_size")
    whole = (r.batch, r.steps, directions, hidden) if r.batch_first else (r.steps, directions, r.batch, hidden)
    return [TensorType(dtype, whole), TensorType(dtype, state), TensorType(dtype, state)][: call.output_count]


def _flops(call: OpCall) -> int:
    r = recurrence(call)
    return 2 * r.steps * r.batch * r.directions * GATES[call.op] * r.hidden * (r.inputs + r.hidden)


def _op(name: str, inputs: int, outputs: int, **attributes: Attribute) -> OpSchema:
    return OpSchema(
        name,
        "recurrent",
        (3, inputs),
        _infer,
        outputs=(0, outputs),
        dtypes=WIDE_FLOATS,
        attributes={
            "activation_alpha": Attribute("floats"),
            "activation_beta": Attribute("floats"),
            "activations": Attribute("strings", ("Tanh", "Tanh") if name == "RNN" else None),
            "clip": Attribute("float"),
            "direction": Attribute("string", "forward", choices=("forward", "reverse", "bidirectional")),
            "hidden_size": Attribute("int"),
            "layout": Attribute("int", 0),
            **attributes,
        },
        flops=_flops,
    )


register(
    _op("RNN", 6, 2),
    _op("GRU", 6, 2, linear_before_reset=Attribute("int", 0)),
    _op("LSTM", 8, 3, input_forget=Attribute("int", 0)),
)
