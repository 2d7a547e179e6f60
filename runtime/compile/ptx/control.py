"""Branches, calls, returns, traps."""

from __future__ import annotations

from typing import NamedTuple

from kgrun.runtime.compile.ptx.context import HIDDEN, llvm_type
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.quick_values import LOOKS
from kgrun.runtime.compile.ptx.rules import Rule
from kgrun.runtime.compile.ptx.syntax import Instruction, Param, listed_names

# Functions of the device's C library that PTX calls by name, and what serves them.
_SERVICES = {
    "vprintf": ("kg_vprintf", "i32"),
    "__assertfail": ("kg_assert", "void"),
    "malloc": ("malloc", "i64"),
    "free": ("free", "void"),
}
HEAP_CALLS = frozenset(("malloc", "free"))


def parameter_type(param: Param) -> str:
    """Scalars travel as values, aggregates by address."""
    return "ptr" if param.is_array else llvm_type(param.type)


def result_type(results: list[Param]) -> str:
    return "void" if not results or results[0].is_array else llvm_type(results[0].type)


def hidden_arguments(e: Emitter) -> list[str]:
    return [] if e.bare else [f"{kind} {name}" for kind, name in HIDDEN]


def call(e: Emitter, i: Instruction) -> None:
    """`call (results), callee, (arguments) {, prototype}`: direct, through a pointer, or a service."""
    operands = list(i.operands)
    results = listed_names(operands.pop(0)) if operands[0].startswith("(") else []
    callee = operands.pop(0)
    arguments = listed_names(operands.pop(0)) if operands and operands[0].startswith("(") else []
    if callee in _SERVICES and not e.program.module.has_body(callee):
        _service(e, i, callee, results, arguments)
        return
    module = e.program.runtime if e.bare else e.program.module
    assert module is not None
    if callee in e.function.registers:
        passed = _Passed(*e.function.prototypes[operands[0]], results, arguments)
        if e.bare:  # into the host's own code
            target = e.value(f"inttoptr i64 {e.read(callee, 'i64')} to ptr")
            _call_function(e, target, passed, _values(e, passed))
        else:
            _call_through_pointer(e, i, callee, passed)
    elif callee in module.signatures:
        signature = module.signatures[callee]
        if not module.has_body(callee) and not e.bare:
            raise e.fail(f"the outside function {callee}")
        passed = _Passed(signature.results, signature.params, results, arguments)
        if module.has_body(callee):
            e.program.need(callee, e.bare)
        _call_function(e, f'@"{callee}"', passed, _values(e, passed))
    else:
        raise e.fail(f"the function {callee}")


class _Passed(NamedTuple):
    """What a call passes: the callee's declarations, and the names that the caller gives for them."""

    result_params: list[Param]
    params: list[Param]
    results: list[str]
    arguments: list[str]

    def types(self) -> tuple[bool, str, list[str]]:
        """What a function must agree in to be called so."""
        is_array = bool(self.result_params) and self.result_params[0].is_array
        return is_array, result_type(self.result_params), [parameter_type(param) for param in self.params]


def _call_through_pointer(e: Emitter, i: Instruction, register: str, passed: _Passed) -> None:
    """A switch over all functions of that type whose address the module takes; no such function is a fault."""
    module, number, values = e.program.module, e.read(register, "i64"), _values(e, passed)
    targets = {
        name: address
        for name, address in module.pointer_targets().items()
        if module.has_body(name)
        and _Passed(module.signatures[name].results, module.signatures[name].params, [], []).types() == passed.types()
    }
    none, done = e.fresh_label("no_function"), e.fresh_label("called")
    labels = {name: e.fresh_label("function") for name in targets}
    cases = " ".join(f"i64 {address}, label %{labels[name]}" for name, address in targets.items())
    e.line(f"switch i64 {number}, label %{none} [ {cases} ]")
    for name, label in labels.items():
        e.label(label)
        e.program.need(name, False)
        _call_function(e, f'@"{name}"', passed, values)
        e.jump(done)
    e.label(none)
    _trap(e, i, "a call through a pointer to no function")
    return_from(e, i)
    e.label(done)


def _values(e: Emitter, passed: _Passed) -> list[str]:
    """The arguments as LLVM takes them."""
    values = hidden_arguments(e)
    if passed.result_params and passed.result_params[0].is_array:
        values.append(f'ptr %"V{passed.results[0]}"')
    for param, argument in zip(passed.params, passed.arguments, strict=True):
        values.append(_argument(e, param, argument))
    return values


def _call_function(e: Emitter, target: str, passed: _Passed, values: list[str]) -> None:
    returned = result_type(passed.result_params)
    text = f"call {returned} {target}({', '.join(values)})"
    if returned == "void":
        e.line(text)
    else:
        e.line(f'store {returned} {e.value(text)}, ptr %"V{passed.results[0]}"')


def _argument(e: Emitter, param: Param, name: str) -> str:
    if name in e.function.variables:
        kind = parameter_type(param)
        place = f'%"V{name}"'
        return f"ptr {place}" if kind == "ptr" else f"{kind} {e.value(f'load {kind}, ptr {place}')}"
    kind = parameter_type(param)
    return f"{kind} {e.read(name, kind)}"


def _service(e: Emitter, i: Instruction, callee: str, results: list[str], arguments: list[str]) -> None:
    service, returned = _SERVICES[callee]
    values = []
    for name in arguments:
        size = e.function.variables[name].size if name in e.function.variables else 8
        value = e.value(f'load i{8 * size}, ptr %"V{name}"')
        values.append(("i64", value if size == 8 else e.value(f"zext i{8 * size} {value} to i64")))
    context = [("ptr", "%L"), ("ptr", "%B"), ("i32", "%t")]
    if callee in HEAP_CALLS and e.exact:
        value = _checked_heap(e, i, callee, values, context)
    elif service.startswith("kg_"):
        site = str(e.program.site(i, callee))
        extra = [("i32", site)] if service == "kg_assert" else []
        value = e.runtime(service, returned, *context, *(values[:3] if extra else values), *extra)
    else:
        value = e.outside(service, returned, *values)
    if results and value:
        e.line(f'store {returned} {value}, ptr %"V{results[0]}"')


def _checked_heap(
    e: Emitter, i: Instruction, callee: str, values: list[tuple[str, str]], context: list[tuple[str, str]]
) -> str:
    """Memory from the heap whose blocks are known, so that accesses outside them are faults."""
    if callee == "malloc":
        return e.runtime("kg_malloc", "i64", context[0], *values)
    return e.runtime("kg_free", "void", *context, *values, ("i32", str(e.program.site(i, callee))))


def trap(e: Emitter, i: Instruction) -> None:
    _trap(e, i)
    return_from(e, i)


def _trap(e: Emitter, i: Instruction, what: str = "") -> None:
    site = str(e.program.site(i, what))
    e.runtime("kg_trap", "void", ("ptr", "%L"), ("ptr", "%B"), ("i32", "%t"), ("i32", site))


def return_from(e: Emitter, i: Instruction) -> None:
    """ret and exit; a kernel's step answers -1, "this thread has ended"."""
    if e.function.is_entry:
        e.line(f"ret i32 {e.value('load i32, ptr %look.found') if e.look in LOOKS else '-1'}")
        return
    if i.parts[0] == "exit":
        raise e.fail("exit inside a function")
    kind = result_type(e.function.results)
    if kind == "void":
        e.line("ret void")
    else:
        value = e.value(f'load {kind}, ptr %"V{e.function.results[0].name}"')
        e.line(f"ret {kind} {value}")


def _sleep(e: Emitter, i: Instruction) -> None:
    """nanosleep: nothing to wait for; spinning threads yield at their loads."""


RULES: dict[str, Rule] = {
    "call": call,
    "trap": trap,
    **dict.fromkeys(("ret", "exit"), return_from),
    "nanosleep": _sleep,
}
