"""A launch's arguments against its kernel's signature: how many, and each one's type, width and direction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kgrun.graphs.bound import (
    Argument,
    BoundGraph,
    BoundNode,
    NullArgument,
    ScalarArgument,
    TensorArgument,
    Warning,
)
from kgrun.graphs.dtypes import DTYPES, VECTORS, itemsize
from kgrun.graphs.errors import GraphError, PathPart
from kgrun.graphs.records import dataclass
from kgrun.runtime.compile.signature import ParamInfo

_POINTER_BYTES = 8
# C types by the dtype that has their bits. Those of 64 bits are one on every platform that CUDA runs on.
_DTYPE_OF = {dtype.c_type: name for name, dtype in DTYPES.items()} | {
    "long": "int64",
    "unsigned long": "uint64",
    "half": "float16",
    "nv_bfloat16": "bfloat16",
    "__half2": "float16",
    "half2": "float16",
    "__nv_bfloat162": "bfloat16",
    "nv_bfloat162": "bfloat16",
}
_SCALARS_ONLY = {"char": "int8"}  # a char* is any memory
_SHORT = {"unsigned": "unsigned int", "signed": "int", "long int": "long", "unsigned long int": "unsigned long"}
_SHORT |= {"long long int": "long long", "unsigned long long int": "unsigned long long", "short int": "short"}


@dataclass(frozen=True, slots=True)
class CType:
    """A parameter's C type: the bare name, and for a pointer whether its target is const (None: not known)."""

    name: str
    pointer: bool
    const: bool | None


def c_type(text: str) -> CType:
    """`const float* __restrict__` as (float, pointer, const); the qualifiers may stand on either side."""
    target, star, _ = text.replace("&", "*").rpartition("*")
    words = (target if star else text).replace("__restrict__", " ").split()
    name = " ".join(word for word in words if word not in ("const", "volatile", "struct"))
    return CType(_SHORT.get(name, name), bool(star), "const" in words if star else None)


def argument_faults(bound: BoundGraph, node: BoundNode, params: Sequence[ParamInfo]) -> Iterator[GraphError]:
    """Everything in the launch of `node` that contradicts the kernel's parameters; code KG341."""
    assert node.launch is not None
    args, kernel = node.launch.args, node.launch.kernel
    if len(args) != len(params):
        listed = ", ".join(_spelled(param) for param in params)
        message = f"kernel {kernel!r} takes {len(params)} arguments ({listed}), {node.name!r} passes {len(args)}"
        yield _fault(bound, node, message, "args", help="`args` lists every parameter in the signature's order")
        return
    at = 0
    for index, (arg, param) in enumerate(zip(args, params, strict=True)):
        size, align = (len(arg.data), arg.align) if isinstance(arg, ScalarArgument) else (_POINTER_BYTES,) * 2
        at += -at % align
        problem, help = _problem(arg, param)
        if problem is None and at != param.offset:
            problem = f"stands at byte {param.offset} of the arguments, but is passed at byte {at}"
            help = "the types before it, or their alignment, differ"
        at = param.offset + param.size if problem else at + size
        if problem:
            message = f"argument {index} of {node.name!r}, {_spelled(param)} in kernel {kernel!r}, {problem}"
            yield _fault(bound, node, message, "args", index, help=help)
    yield from _const_faults(bound, node, params)


def element_warnings(bound: BoundGraph, node: BoundNode, params: Sequence[ParamInfo]) -> Iterator[Warning]:
    """Tensors passed to pointers of another element type: a slip, or meant as a view of the bits."""
    assert node.launch is not None
    for index, (arg, param) in enumerate(zip(node.launch.args, params, strict=False)):
        if not isinstance(arg, TensorArgument) or not param.type_name:
            continue
        pointee = c_type(param.type_name)
        wanted = _pointee_dtype(pointee.name) if pointee.pointer else None
        given = bound.tensors[arg.name].type.dtype
        if wanted is not None and not _same_bits(wanted, given):
            text = f"{arg.name!r} is {given}, kernel {node.launch.kernel!r} takes it as {param.type_name}"
            yield Warning("W-ELEMENT-TYPE", text, ("nodes", node.position, "args", index))


def _problem(arg: Argument, param: ParamInfo) -> tuple[str | None, str | None]:
    """What is wrong with one argument, and what to do about it."""
    if isinstance(arg, ScalarArgument):
        return _scalar_problem(arg, param)
    what = "null" if isinstance(arg, NullArgument) else "an address"
    # A struct may hold just a pointer, and an integer of 64 bits may carry one.
    if param.size != _POINTER_BYTES or _is_float(param):
        return f"takes {param.size} bytes, but {what} is passed", "pass a typed value, for example {int32: 7}"
    return None, None


def _scalar_problem(arg: ScalarArgument, param: ParamInfo) -> tuple[str | None, str | None]:
    size = len(arg.data)
    if size != param.size:
        return f"takes {param.size} bytes, but {arg.type} has {size}", _advice(param)
    if param.kind == "pointer" and param.type_name:
        return f"is a pointer, but a value of type {arg.type} is passed", "pass a tensor by its name, or null"
    wanted = _scalar_dtype(param)
    if wanted is None or arg.type not in DTYPES:
        return None, None
    raw = DTYPES[arg.type].kind == "uint" and size <= 2  # the bits of a 16- or 8-bit float
    if DTYPES[wanted].kind == "float" and raw:
        return None, None
    return (None, None) if _same_bits(wanted, arg.type) else (f"is passed {arg.type}", _advice(param))


def _const_faults(bound: BoundGraph, node: BoundNode, params: Sequence[ParamInfo]) -> Iterator[GraphError]:
    """Outputs that the kernel only gets as pointers to const: it cannot write them."""
    assert node.launch is not None
    ways: dict[str, list[tuple[int, bool | None]]] = {}
    for index, (arg, param) in enumerate(zip(node.launch.args, params, strict=True)):
        if isinstance(arg, TensorArgument):
            ways.setdefault(arg.name, []).append((index, param.const))
    for name in node.written_names():
        passed = ways.get(name) or ways.get(node.inplace.get(name, ""), [])
        if passed and all(const for _, const in passed):
            index = passed[0][0]
            message = f"output {name!r} of {node.name!r} is argument {index}, {_spelled(params[index])}"
            message += f" in kernel {node.launch.kernel!r}: the kernel cannot write it"
            help = "list it among the inputs, or correct the order of `args`"
            yield _fault(bound, node, message, "args", index, help=help)


def _fault(bound: BoundGraph, node: BoundNode, message: str, *path: PathPart, help: str | None) -> GraphError:
    return GraphError(message, code="KG341", where=bound.source.place("nodes", node.position, *path), help=help)


def _spelled(param: ParamInfo) -> str:
    return f"`{param.type_name}`" if param.type_name else f"{param.size} bytes"


def _scalar_dtype(param: ParamInfo) -> str | None:
    name = c_type(param.type_name).name
    return None if param.kind == "pointer" else _DTYPE_OF.get(name) or _SCALARS_ONLY.get(name)


def _pointee_dtype(name: str) -> str | None:
    """The element type of a pointer's target; None for memory of any type: bytes, structs, wide integer vectors."""
    if name in VECTORS:
        base = VECTORS[name][0]
        return base if DTYPES[base].kind == "float" else None
    dtype = _DTYPE_OF.get(name)
    return None if dtype is not None and itemsize(dtype) == 1 and DTYPES[dtype].kind != "float" else dtype


def _is_float(param: ParamInfo) -> bool:
    dtype = _scalar_dtype(param) if param.type_name else None
    return dtype is not None and DTYPES[dtype].kind == "float"


def _same_bits(first: str, second: str) -> bool:
    """Whether a value of one dtype is one of the other, signs apart."""
    if first == second:
        return True
    a, b = DTYPES[first], DTYPES[second]
    return a.itemsize == b.itemsize and "float" not in (a.kind, b.kind)


def _advice(param: ParamInfo) -> str | None:
    dtype = _scalar_dtype(param)
    return f"write {{{dtype}: …}}" if dtype else "give the scalar the C type's width: {int32: 7} for `int`"
