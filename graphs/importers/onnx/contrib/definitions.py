"""Operators of ONNX Runtime's that are written as functions of ONNX's, since they have loops in them."""

from __future__ import annotations

from collections.abc import Callable

from kgrun.graphs.data_onnx import Message, import_onnx
from kgrun.graphs.importers.onnx.contrib.parts import refuse, refuse_inputs
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use

_HEAD = """<opset_import: ["": 18], domain: "com.microsoft">
DynamicQuantizeLSTM (X, W, R, B, lengths, H, C, P, w_scales, w_zeros, r_scales, r_zeros) => (Y, Y_h, Y_c) {
  first = Constant<value_ints = [0]>()
  second = Constant<value_ints = [1]>()
  x, x_scale, x_zero = DynamicQuantizeLinear(X)
"""
# One direction: all products of inputs at once, then a step at a time, of which each quantises the state.
_DIRECTION = """
  at{d} = Constant<value_int = {d}>()
  w{d} = Gather<axis = 0>(W, at{d})
  wz{d} = Gather<axis = 0>(w_zeros, at{d})
  ws{d} = Gather<axis = 0>(w_scales, at{d})
  product{d} = MatMulInteger(x, w{d}, x_zero, wz{d})
  real{d} = Cast<to = 1>(product{d})
  scale{d} = Mul(x_scale, ws{d})
  plain{d} = Mul(real{d}, scale{d})
  {bias}
  r{d} = Gather<axis = 0>(R, at{d})
  rz{d} = Gather<axis = 0>(r_zeros, at{d})
  rs{d} = Gather<axis = 0>(r_scales, at{d})
  {state}
  h{d}, c{d}, all{d} = Scan<
    num_scan_inputs = 1, scan_input_directions = [{back}], scan_output_directions = [{back}],
    body = step (float[a, b] h, float[a, b] c, float[a, e] z) => (float[a, b] h_next, float[a, b] c_next, float[a, b] y)
    {{
      q, q_scale, q_zero = DynamicQuantizeLinear(h)
      product = MatMulInteger(q, r{d}, q_zero, rz{d})
      real = Cast<to = 1>(product)
      scale = Mul(q_scale, rs{d})
      plain = Mul(real, scale)
      gates = Add(z, plain)
      i, o, f, g = Split<axis = -1, num_outputs = 4>(gates)
      taken = Sigmoid(i)
      shown = Sigmoid(o)
      kept = Sigmoid(f)
      new = Tanh(g)
      old_part = Mul(kept, c)
      new_part = Mul(taken, new)
      c_next = Add(old_part, new_part)
      bounded = Tanh(c_next)
      h_next = Mul(shown, bounded)
      y = Identity(h_next)
    }}>(start_h{d}, start_c{d}, biased{d})
  y{d} = Unsqueeze(all{d}, second)
  yh{d} = Unsqueeze(h{d}, first)
  yc{d} = Unsqueeze(c{d}, first)
"""
_BIAS = """b{d} = Gather<axis = 0>(B, at{d})
  wb{d}, rb{d} = Split<axis = 0, num_outputs = 2>(b{d})
  bias{d} = Add(wb{d}, rb{d})
  biased{d} = Add(plain{d}, bias{d})"""
_GIVEN = "start_{s}{d} = Gather<axis = 0>({name}, at{d})"
_ZEROS = """batch_{s}{d} = Shape<start = 1, end = 2>(X)
  size_{s}{d} = Shape<start = 0, end = 1>(r{d})
  shape_{s}{d} = Concat<axis = 0>(batch_{s}{d}, size_{s}{d})
  start_{s}{d} = ConstantOfShape(shape_{s}{d})"""


def _quantized_lstm(use: Use) -> Message:
    """DynamicQuantizeLSTM: an LSTM whose products are of bytes, the inputs' range taken once, the state's each step."""
    refuse(use, clip=None, input_forget=0)
    refuse_inputs(use, sequence_lens=4, P=7)
    turned = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}.get(use.attributes.get("direction", "forward"))
    if turned is None:
        raise Unsupported(f"direction {use.attributes['direction']!r}")
    if use.attributes.get("activations", _FUNCTIONS * len(turned)) != _FUNCTIONS * len(turned):
        raise Unsupported("other activations than ONNX's own")
    parts = [_HEAD]
    for d, back in enumerate(turned):
        bias = f"biased{d} = Identity(plain{d})" if use.input(3) is None else _BIAS.format(d=d)
        state = [
            _ZEROS.format(d=d, s=s) if use.input(index) is None else _GIVEN.format(d=d, s=s, name=s.upper())
            for s, index in (("h", 5), ("c", 6))
        ]
        parts.append(_DIRECTION.format(d=d, back=back, bias=bias, state="\n  ".join(state)))
    for target, source, axis in (("Y", "y", 1), ("Y_h", "yh", 0), ("Y_c", "yc", 0)):
        names = ", ".join(f"{source}{d}" for d in range(len(turned)))
        parts.append(f"  {target} = Concat<axis = {axis}>({names})\n")
    return import_onnx().parser.parse_function("".join([*parts, "}"]))


_FUNCTIONS = ["Sigmoid", "Tanh", "Tanh"]
DEFINITIONS: dict[tuple[str, str], Callable[[Use], Message]] = {
    ("com.microsoft", "DynamicQuantizeLSTM"): _quantized_lstm
}
