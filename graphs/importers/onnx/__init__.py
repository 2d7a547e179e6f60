"""ONNX models as kgrun graphs: opsets 7 to 28, functions, control flow, weights from where they lie."""

from kgrun.graphs.importers.onnx.model import import_model, onnx_graph, write_onnx

__all__ = ["import_model", "onnx_graph", "write_onnx"]
