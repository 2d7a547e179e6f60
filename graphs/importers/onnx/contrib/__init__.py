"""Operators that ONNX Runtime adds when it optimises or quantises a model (domain com.microsoft), by ONNX's own.

Their semantics: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from __future__ import annotations

from kgrun.graphs.importers.onnx.contrib.attention import ATTENTION
from kgrun.graphs.importers.onnx.contrib.blocks import BLOCKS
from kgrun.graphs.importers.onnx.contrib.fused import FUSED
from kgrun.graphs.importers.onnx.contrib.images import IMAGES
from kgrun.graphs.importers.onnx.contrib.normalization import NORMALIZATION
from kgrun.graphs.importers.onnx.contrib.parts import Contrib
from kgrun.graphs.importers.onnx.contrib.quantized import QUANTIZED
from kgrun.graphs.importers.onnx.contrib.standard import STANDARD

DOMAIN = "com.microsoft"
CONTRIB: dict[tuple[str, str], Contrib] = {
    ("", "SimplifiedLayerNormalization"): NORMALIZATION["SimplifiedLayerNormalization"],
    **{
        (DOMAIN, op): adapter
        for table in (FUSED, NORMALIZATION, ATTENTION, QUANTIZED, BLOCKS, IMAGES, STANDARD)
        for op, adapter in table.items()
    },
}
