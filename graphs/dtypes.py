"""Element types: their names, widths, kinds and C spellings. Needs no numpy."""

from __future__ import annotations

from typing import Literal, get_args

from kgrun.graphs.records import dataclass

DTypeName = Literal[
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
]
Kind = Literal["float", "int", "uint", "bool"]

# Most axes of a tensor: some of numpy's functions take no more.
MAX_AXES = 32


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Attributes:
        name: as graph files spell it (numpy's and ml_dtypes' name).
        itemsize: bytes an element.
        kind: float, int, uint or bool.
        c_type: the CUDA C type.
        limits: smallest and largest integer, None for floats.
    """

    name: str
    itemsize: int
    kind: Kind
    c_type: str
    limits: tuple[int, int] | None = None


def _integer(bits: int, signed: bool, c_type: str) -> DType:
    limits = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return DType(f"{'' if signed else 'u'}int{bits}", bits // 8, "int" if signed else "uint", c_type, limits)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("float64", 8, "float", "double"),
        DType("float32", 4, "float", "float"),
        DType("float16", 2, "float", "__half"),
        DType("bfloat16", 2, "float", "__nv_bfloat16"),
        DType("float8_e4m3fn", 1, "float", "__nv_fp8_e4m3"),
        DType("float8_e5m2", 1, "float", "__nv_fp8_e5m2"),
        _integer(64, True, "long long"),
        _integer(32, True, "int"),
        _integer(16, True, "short"),
        _integer(8, True, "signed char"),
        _integer(64, False, "unsigned long long"),
        _integer(32, False, "unsigned int"),
        _integer(16, False, "unsigned short"),
        _integer(8, False, "unsigned char"),
        DType("bool", 1, "bool", "bool", (0, 1)),
    )
}
assert tuple(DTYPES) == get_args(DTypeName)

# The numbers of ONNX's TensorProto.DataType.
ONNX_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "float8_e4m3fn",
    19: "float8_e5m2",
}

FLOATS = frozenset(name for name, d in DTYPES.items() if d.kind == "float")
WIDE_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGERS = frozenset(name for name, d in DTYPES.items() if d.kind in ("int", "uint"))
NUMBERS = WIDE_FLOATS | INTEGERS


def _vectors() -> dict[str, tuple[str, int, int]]:
    bases = {
        "char": "int8",
        "short": "int16",
        "int": "int32",
        "longlong": "int64",
        "float": "float32",
        "double": "float64",
    }
    bases |= {f"u{base}": f"u{element}" for base, element in bases.items() if element.startswith("int")}
    rows = {}
    for base, element in bases.items():
        size = DTYPES[element].itemsize
        for count in (2, 3, 4):
            # A triple keeps its element's alignment; pairs and quadruples are aligned whole, to 16 bytes at most.
            rows[f"{base}{count}"] = (element, count, size if count == 3 else min(16, size * count))
    return rows


# CUDA's built-in vector types as kernel arguments: name -> (element, count, alignment in bytes).
VECTORS = _vectors()


def itemsize(dtype: str) -> int:
    """Bytes of one element of `dtype`."""
    return DTYPES[dtype].itemsize
