"""Tells what a file is that is no graph, by its content or its name."""

from __future__ import annotations

import re
from pathlib import Path

# The first bytes of files that people hand over by mistake.
_MAGIC = (
    (b"\x7fELF", "ELF/cubin"),
    (b"PK\x03\x04", "a zip archive (.npz)"),
    (b"PK\x05\x06", "an empty zip archive (.npz)"),
    (b"\x93NUMPY", "a numpy array (.npy)"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"\x50\xed\x55\xba", "a CUDA fat binary"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"!<arch>\n", "a static library"),
    (b"\x80\x02", "a Python pickle (.pt, .pkl)"),
    (b"\x80\x04\x95", "a Python pickle (.pt, .pkl)"),
    (b"\x80\x05\x95", "a Python pickle (.pt, .pkl)"),
    (b"GGUF", "GGUF"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF", "a PDF document"),
    (b"ftrt", "a TensorRT engine"),
)
# ir_version as field 1, then one of ModelProto's other fields.
_ONNX = re.compile(rb"\x08[\x01-\x20](?:[\x12\x1a\x22\x32\x3a\x42\x72]|\x28[\x00-\x7f])")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

_TEXTS = (
    (re.compile(r"\A(?://.*\n|\s)*\.version\s+\d+\.\d+", re.ASCII), "PTX"),
    (re.compile(r"__global__\s|^[ \t]*#[ \t]*include[ \t]*[<\"]", re.MULTILINE), "CUDA C source"),
    (re.compile(r"^\s*id\s*,\s*lower\s*,\s*upper\s*,\s*size", re.IGNORECASE), "a packing problem (.csv)"),
    (re.compile(r"^\s*<(?:!doctype|html|\?xml)", re.IGNORECASE), "HTML or XML"),
    (re.compile(r"^(?:import|from) \w+|^def \w+\(|^#!.*python", re.MULTILINE), "Python source"),
)

_HELP = {
    "an ONNX model": "name it .onnx, or turn it into a graph with `kgrun import`",
    "ELF/cubin": "name it as the `source` of a kernel in a graph file",
    "PTX": "name it as the `source` of a kernel in a graph file",
    "CUDA C source": "name it as the `source` of a kernel in a graph file",
    "a zip archive (.npz)": "give data with --inputs, or as `data` of a tensor in a graph file",
    "a numpy array (.npy)": "give data with --input NAME=FILE, or as `data` of a tensor in a graph file",
    "a safetensors file": "name it as `data` of a tensor in a graph file: file.safetensors#key",
    "a packing problem (.csv)": "`kgrun plan-memory` takes it under a name that ends in .csv",
}


def binary_kind(data: bytes) -> str | None:
    """What `data` look like if they are a known kind of file that is not text."""
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data.startswith(_UTF16):
        return "UTF-16 text"
    if _ONNX.match(data):
        return "an ONNX model"
    if data[8:9] == b"{" and b"\0\0" in data[:8] and int.from_bytes(data[:8], "little") < 1 << 30:
        return "a safetensors file"
    return None


def text_kind(text: str) -> str | None:
    """What `text` looks like if it is a known kind of text other than a graph."""
    head = text[:20_000]
    for pattern, kind in _TEXTS:
        if pattern.search(head):
            return kind
    return None


def help_for(kind: str) -> str | None:
    """What to do with a file of that kind."""
    return _HELP.get(kind)


def is_onnx(source: Path) -> bool:
    """Whether `source` is named as ONNX models are."""
    return source.suffix.lower() == ".onnx"
