"""Layers of images whose channels come last: moved to axis 1, computed by ONNX's operator, moved back."""

from __future__ import annotations

from kgrun.graphs.importers.onnx.contrib.fused import activated
from kgrun.graphs.importers.onnx.contrib.parts import Contrib, Results, moved
from kgrun.graphs.importers.onnx.uses import Use


def _convolution(use: Use) -> Results:
    """NhwcConv, and NhwcFusedConv with a sum and an activation; weights lie as ONNX has them."""
    inputs, added = use.tensors[:3], use.input(3)
    inputs[0] = moved(use, use.needed(0), last=False)
    if added is not None:
        added = moved(use, added, last=False)
    made = activated(use, "Conv", inputs, added)[0]
    return [moved(use, made, last=True)]


def _max_pool(use: Use) -> Results:
    return [moved(use, use.part("MaxPool", [moved(use, use.needed(0), last=False)], **use.attributes), last=True)]


IMAGES: dict[str, Contrib] = {
    "NhwcConv": _convolution,
    "NhwcFusedConv": _convolution,
    "NhwcMaxPool": _max_pool,
}
