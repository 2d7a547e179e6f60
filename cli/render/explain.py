"""What `explain` prints of a kernel, a tensor or the peak: explanations as plain values, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.documents import graph_fields
from kgrun.cli.render.table import Table
from kgrun.cli.render.text import bytes_text, count_text, shape_text
from kgrun.runtime.program import Decision, Program

if TYPE_CHECKING:
    from kgrun.runtime.memory.explain import Sharer, TensorExplanation
    from kgrun.runtime.memory.explain_index import BufferRef, StepRef
    from kgrun.runtime.memory.explain_kernel import ArgumentExplanation, KernelExplanation, StepExplanation
    from kgrun.runtime.memory.explain_peak import PeakExplanation

NAMED = 10  # of a long list, in one line


def explain_document(
    program: Program,
    kernel: KernelExplanation | None,
    tensor: TensorExplanation | None,
    peak: PeakExplanation | None,
) -> dict[str, Any]:
    """`explain --json`: each part, or null."""
    parts = {"kernel": kernel, "tensor": tensor, "peak": peak}
    return graph_fields(program.graph) | {"target": program.target} | {k: plain_value(v) for k, v in parts.items()}


def plain_value(value: Any) -> Any:
    """Dataclasses as objects, tuples as lists, bytes as hexadecimal text."""
    if is_dataclass(value):
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def _row(label: str, text: str) -> str:
    return f"  {label:<10} {text}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _steps(steps: Sequence[StepRef]) -> str:
    return _listed([f"{step.name} (step {step.index})" for step in steps])


def kernel_lines(kernel: KernelExplanation) -> Iterator[str]:
    """One node and its steps."""
    yield f"kernel {kernel.node}: {kernel.op} on stream {kernel.stream}"
    yield _row("inputs", ", ".join(name or "(absent)" for name in kernel.inputs) or "none")
    for name, instead in zip(kernel.turned, kernel.inputs, strict=False):
        if name is not None:
            yield _row("turned", f"{instead} is read in place of {name}, its last two axes swapped")
    yield _row("outputs", ", ".join(name or "(absent)" for name in kernel.outputs) or "none")
    if kernel.not_run is not None:
        yield _row("not run", kernel.not_run)
    for step in kernel.steps:
        yield from _step_lines(step)


def _step_lines(step: StepExplanation) -> Iterator[str]:
    yield f"step {step.step.index} {step.step.name}: {step.work}{f' of {step.code}' if step.code else ''}"
    if step.grid is not None and step.block is not None:
        grid, block = (" × ".join(map(str, dims)) for dims in (step.grid, step.block))
        cluster = f", cluster {' × '.join(map(str, step.cluster))}" if step.cluster else ""
        yield _row("launch", f"grid {grid}, block {block}{cluster}{', cooperative' if step.cooperative else ''}")
        yield _row("shared", f"{step.shared:,} bytes, dynamic")
    for argument in step.arguments:
        yield _row(argument.role or f"argument {argument.position}", argument_text(argument))
    if step.waits_for:
        yield _row("waits for", _steps(step.waits_for))
    peak = ": the peak" if step.at_peak else ""
    yield _row("live", f"{bytes_text(step.live_bytes)} of dynamic memory{peak}")
    for label, buffers in (("born here", step.born), ("dies here", step.dies)):
        if buffers:
            yield _row(label, _buffers(buffers))


def _buffers(buffers: Sequence[BufferRef]) -> str:
    return _listed([f"{each.name} {bytes_text(each.aligned)}" for each in buffers])


def argument_text(argument: ArgumentExplanation) -> str:
    """`z: float32[8] at dynamic 512`, `2 (float32)`, `null`."""
    if argument.kind == "null":
        return f"null, {' = '.join(argument.tensors)}" if argument.tensors else "null"
    if argument.kind == "value":
        return f"{argument.value}{f' ({argument.dtype})' if argument.dtype else ''}"
    name = " = ".join(argument.tensors) or argument.buffer or "?"
    kind = f": {shape_text(argument.dtype, argument.shape)}" if argument.dtype and argument.shape is not None else ""
    place = f" at {argument.space} {argument.offset:,}" if argument.space is not None else ", no bytes"
    return f"{name}{kind}{place}"


def tensor_lines(tensor: TensorExplanation) -> Iterator[str]:
    """One tensor or workspace."""
    yield f"tensor {tensor.name}: {tensor.role}"
    kind = shape_text(tensor.dtype, tensor.shape) if tensor.dtype and tensor.shape is not None else "bytes"
    yield _row("type", f"{kind}, {bytes_text(tensor.nbytes)}")
    yield _row("written by", _steps(tensor.written_by) or f"no step: {_origin(tensor)}")
    yield _row("read by", _steps(tensor.read_by) or "no step")
    if tensor.no_memory is not None or tensor.offset is None:
        yield _row("memory", f"none: {tensor.no_memory}")
    else:
        yield from _place_lines(tensor, tensor.offset)
    for decision in tensor.inplace:
        yield _row("in place", decision_text(decision))


def _origin(tensor: TensorExplanation) -> str:
    """How a tensor that no step writes comes by its bytes."""
    shared = next((member.reason for member in tensor.alias_class if member.name == tensor.name), None)
    if shared is not None:
        return f"it is a {shared}" if shared.startswith("view") else shared
    if tensor.no_memory is not None and tensor.read_by and tensor.nbytes:
        return "nothing needs it"  # its readers read another tensor
    if tensor.role in ("intermediate", "output"):
        return "its value is known before the run" if tensor.nbytes else "it has no elements"
    return "it comes from outside"


def _place_lines(tensor: TensorExplanation, offset: int) -> Iterator[str]:
    held = f"{tensor.memory_class}, {tensor.space} offset {offset:,}, {tensor.aligned:,} bytes held"
    yield _row("memory", f"{held}{', alive at the peak' if tensor.at_peak else ''}")
    if tensor.first is not None and tensor.last is not None:
        first, last = tensor.first, tensor.last
        yield _row("alive", f"steps {first.index} to {last.index} ({first.name} to {last.name})")
    for member in tensor.alias_class if len(tensor.alias_class) > 1 else ():
        yield _row("same bytes", f"{member.name}: {member.reason or 'owns them'}")
    for label, sharers in (("takes over", tensor.before), ("left to", tensor.after)):
        if sharers:
            yield _row(label, _listed([_sharer_text(each) for each in sharers]))
    if tensor.alone_because is not None:
        yield _row("no reuse", tensor.alone_because)


def _sharer_text(sharer: Sharer) -> str:
    return f"{sharer.name} ({bytes_text(sharer.shared_bytes)}, steps {sharer.first.index} to {sharer.last.index})"


def decision_text(decision: Decision) -> str:
    """An in-place request and what became of it."""
    verdict = "granted" if decision.granted else "refused"
    return f"{decision.output} over {decision.input} in {decision.node}: {verdict}, {decision.reason}"


def peak_sections(peak: PeakExplanation) -> Iterator[Table | str]:
    """What the peak is made of, and what would lower it."""
    if peak.step is None:
        yield peak.note or "no dynamic memory"
        return
    more = f", one of {peak.plateau:,} steps that hold as much" if peak.plateau > 1 else ""
    yield f"peak: step {peak.step.index}, {peak.step.name}: {bytes_text(peak.live_bytes)} of dynamic memory{more}"
    height = f"{bytes_text(peak.height)} high, {bytes_text(peak.hole_bytes)} of it free at the peak"
    yield _row("arena", f"{height}; lower bound {bytes_text(peak.lower_bound)}")
    yield _row("static", f"{bytes_text(peak.static_bytes)} on top of it")
    yield _row("classes", ", ".join(f"{name} {bytes_text(nbytes)}" for name, nbytes in peak.class_bytes))
    rows = [
        (
            c.name,
            c.memory_class,
            bytes_text(c.aligned),
            f"{c.first.index}-{c.last.index}",
            "used" if c.touched else "waits",
        )
        for c in peak.contributors
    ]
    yield Table("Contributors", ("buffer", "class", ">bytes", ">steps", "at the peak"), rows, rest="buffers")
    changes = [(bytes_text(c.saved_bytes), bytes_text(c.bound_after), c.text) for c in peak.changes]
    if changes:
        yield Table("Single changes that would lower the bound", (">saves", ">bound then", "change"), changes)
    if peak.note is not None:
        yield ""
        yield peak.note
    if peak.holes:
        yield ""
        yield f"{count_text(len(peak.holes), 'hole')} in the arena at the peak"
