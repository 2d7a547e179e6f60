"""What `explain` says of one kernel or tensor: facts as plain values, and the same as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgrun.cli.render.documents import graph_fields, members
from kgrun.cli.render.lifetimes import live_dynamic_bytes
from kgrun.cli.render.text import bytes_text, count_text, shape_text
from kgrun.graphs.bound import Argument, BoundGraph, BoundNode, ScalarArgument, TensorArgument, WorkspaceArgument
from kgrun.runtime.memory.plan_types import MemoryPlan, Placement
from kgrun.runtime.program import Buffer, Launch, Program, Step

Facts = dict[str, Any]


def explain_document(program: Program, kernel: Facts | None, tensor: Facts | None) -> Facts:
    """`explain --json`."""
    return graph_fields(program.graph) | {"target": program.target, "kernel": kernel, "tensor": tensor}


def kernel_facts(program: Program, plan: MemoryPlan, name: str) -> Facts | None:
    """Facts of the node (or of the node of the step) called `name`; None where there is none."""
    by_step = next((program.node_of(step) for step in program.steps if step.name == name), None)
    node = next((node for node in program.graph.nodes if node.name == name), by_step)
    if node is None:
        return None
    bound = program.graph
    steps = [step for step in program.steps if step.node == node.index]
    live = live_dynamic_bytes(plan, len(program.steps))
    return {
        "name": node.name,
        "op": node.op,
        "stream": node.stream,
        "order": node.index,
        "where": str(bound.source.place("nodes", node.position)),
        "inputs": [_typed(bound, each) for each in node.inputs],
        "outputs": [_typed(bound, each) for each in node.outputs],
        "launch": _launch_facts(bound, node),
        "workspace_bytes": list(node.workspace),
        "waits_for": [bound.nodes[index].name for index in node.predecessors],
        "flops": node.flops,
        "bytes": node.bytes,
        "steps": [_step_facts(step, live) for step in steps],
        "inplace": [members(each) for each in program.decisions if each.node == node.name],
    }


def _typed(bound: BoundGraph, name: str | None) -> Facts | None:
    if name is None:
        return None
    kind = bound.tensors[name].type
    return {"name": name, "dtype": kind.dtype, "shape": list(kind.shape), "nbytes": kind.nbytes}


def _launch_facts(bound: BoundGraph, node: BoundNode) -> Facts | None:
    launch = node.launch
    if launch is None:
        return None
    x, y, z = launch.block
    return {
        "kernel": launch.kernel,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "threads_per_block": x * y * z,
        "shared_bytes": launch.shared,
        "cluster": list(launch.cluster) if launch.cluster else None,
        "cooperative": launch.cooperative,
        "arguments": [_argument_text(each) for each in launch.args],
    }


def _argument_text(argument: Argument) -> str:
    if isinstance(argument, TensorArgument):
        return f"address of {argument.name}"
    if isinstance(argument, ScalarArgument):
        return f"{argument.type} 0x{argument.data[::-1].hex()}"
    if isinstance(argument, WorkspaceArgument):
        return f"address of workspace {argument.index}"
    return "null"


def _step_facts(step: Step, live: list[int]) -> Facts:
    work = step.work
    return {
        "index": step.index,
        "name": step.name,
        "work": type(work).__name__.lower(),
        "grid": list(work.grid) if isinstance(work, Launch) else None,
        "block": list(work.block) if isinstance(work, Launch) else None,
        "live_dynamic_bytes": live[step.index],
    }


def tensor_facts(program: Program, plan: MemoryPlan, name: str) -> Facts | None:
    """Facts of the tensor or workspace called `name`; None where there is none."""
    tensor = program.graph.tensors.get(name)
    slot = program.slots.get(name)
    buffer = program.buffers[slot.buffer] if slot else next((b for b in program.buffers if b.name == name), None)
    if tensor is None and buffer is None:
        return None
    nodes = program.graph.nodes
    facts: Facts = {"name": name, "role": tensor.role if tensor else "workspace"}
    if tensor is not None:
        facts |= {
            "dtype": tensor.type.dtype,
            "shape": list(tensor.type.shape),
            "nbytes": tensor.nbytes,
            "producer": nodes[tensor.producer].name if tensor.producer is not None else None,
            "consumers": [nodes[index].name for index in tensor.consumers],
            "output": tensor.is_output,
        }
    place = next((p for p in plan.placements if buffer is not None and p.buffer == buffer.index), None)
    return facts | {"memory": _memory_facts(program, plan, name, buffer, place, slot.offset if slot else 0)}


def _memory_facts(
    program: Program, plan: MemoryPlan, name: str, buffer: Buffer | None, place: Placement | None, inside: int
) -> Facts | None:
    if buffer is None or place is None:
        return None
    first, last = (
        program.steps[index].name if program.steps else None for index in (place.first_step, place.last_step)
    )
    return {
        "class": str(place.memory_class),
        "space": place.space,
        "offset": place.offset + inside,
        "nbytes": place.nbytes,
        "aligned_bytes": place.aligned,
        "first_step": place.first_step,
        "first_kernel": first,
        "last_step": place.last_step,
        "last_kernel": last,
        "owner": buffer.name,
        "members": [{"name": each, "why": (buffer.shares or {}).get(each)} for each in buffer.tensors if each != name],
        "own_reason": (buffer.shares or {}).get(name),
        "same_bytes_before": [p.name for p in _sharing(plan, place) if p.last_step < place.first_step],
        "same_bytes_after": [p.name for p in _sharing(plan, place) if p.first_step > place.last_step],
        "kept": keep_reason(buffer, place, program),
        "alive_at_other_times": len(_never_meeting(plan, place)),
    }


def _sharing(plan: MemoryPlan, place: Placement) -> list[Placement]:
    """Other dynamic placements that take some of the same bytes at another time."""
    if place.space != "dynamic":
        return []
    end = place.offset + place.aligned
    return [
        other
        for other in plan.placements
        if other.space == "dynamic"
        and other.buffer != place.buffer
        and other.offset < end
        and place.offset < other.offset + other.aligned
    ]


def _never_meeting(plan: MemoryPlan, place: Placement) -> list[Placement]:
    """Other dynamic placements that never hold data in the same step."""
    return [
        other
        for other in plan.placements
        if other.space == "dynamic" and (other.last_step < place.first_step or other.first_step > place.last_step)
    ]


def keep_reason(buffer: Buffer, place: Placement, program: Program) -> str | None:
    """Why no other tensor may ever use these bytes; None where lifetimes alone decide."""
    if place.space == "static":
        return (
            f"{'an' if place.memory_class[0] in 'aeiou' else 'a'} {place.memory_class} keeps its bytes for the session"
        )
    if buffer.no_reuse:
        return "no_reuse: it shares its bytes with no other tensor"
    if buffer.lifelong:
        return "lifelong: it keeps its bytes for the whole run"
    if place.first_step == 0 and place.last_step == len(program.steps) - 1:
        return "it holds data in every step"
    return None


def explain_lines(kernel: Facts | None, tensor: Facts | None) -> Iterator[str]:
    """The facts as lines."""
    if kernel is not None:
        yield from _kernel_lines(kernel)
    if kernel is not None and tensor is not None:
        yield ""
    if tensor is not None:
        yield from _tensor_lines(tensor)


def _kernel_lines(facts: Facts) -> Iterator[str]:
    yield f"kernel {facts['name']}: {facts['op']} on stream {facts['stream']}, number {facts['order']} in order"
    yield f"  at {facts['where']}"
    for what in ("inputs", "outputs"):
        for row in facts[what]:
            label = f"{what[:-1]:<10}"
            yield f"  {label} {_type_line(row) if row else '(absent)'}"
    if launch := facts["launch"]:
        grid, block = (" × ".join(map(str, launch[key])) for key in ("grid", "block"))
        yield f"  launch     grid {grid}, block {block} ({launch['threads_per_block']} threads)"
        yield f"  shared     {launch['shared_bytes']:,} bytes of dynamic shared memory"
        yield from (f"  argument {i:<2} {text}" for i, text in enumerate(launch["arguments"]))
    yield from (f"  workspace  {bytes_text(nbytes)}" for nbytes in facts["workspace_bytes"])
    if facts["waits_for"]:
        yield f"  waits for  {', '.join(facts['waits_for'])}"
    for step in facts["steps"]:
        live = bytes_text(step["live_dynamic_bytes"])
        yield f"  step {step['index']:<5} {step['name']} ({step['work']}), {live} of dynamic memory live"
    for each in facts["inplace"]:
        verdict = "granted" if each["granted"] else "refused"
        yield f"  in place   {each['output']} over {each['input']}: {verdict}, {each['reason']}"


def _type_line(row: Facts) -> str:
    return f"{row['name']}: {shape_text(row['dtype'], tuple(row['shape']))}, {bytes_text(row['nbytes'])}"


def _tensor_lines(facts: Facts) -> Iterator[str]:
    yield f"tensor {facts['name']}: {facts['role']}"
    if "dtype" in facts:
        yield f"  type       {shape_text(facts['dtype'], tuple(facts['shape']))}, {bytes_text(facts['nbytes'])}"
        yield f"  written by {facts['producer'] or 'nobody: it comes from outside'}"
        readers = [*facts["consumers"], *(["the graph's user: it is an output"] if facts["output"] else [])]
        yield f"  read by    {', '.join(readers) or 'nobody'}"
    memory = facts["memory"]
    if memory is None:
        yield "  memory     none: no kernel touches it on the device"
        return
    place = f"{memory['class']}, {memory['space']} offset {memory['offset']:,}"
    yield f"  memory     {place}, {memory['aligned_bytes']:,} bytes held"
    yield (
        f"  alive      steps {memory['first_step']} to {memory['last_step']}"
        f" ({memory['first_kernel']} to {memory['last_kernel']})"
    )
    if memory["owner"] != facts["name"]:
        yield f"  lives in   {memory['owner']}{': ' + memory['own_reason'] if memory['own_reason'] else ''}"
    for row in memory["members"]:
        yield f"  shared by  {row['name']}{': ' + row['why'] if row['why'] else ''}"
    for key, label in (("same_bytes_before", "takes over"), ("same_bytes_after", "left to")):
        if memory[key]:
            yield f"  {label:<10} {', '.join(memory[key][:10])}{', …' if len(memory[key]) > 10 else ''}"
    if memory["kept"]:
        yield f"  no reuse   {memory['kept']}"
    elif not memory["same_bytes_before"] and not memory["same_bytes_after"]:
        others = memory["alive_at_other_times"]
        yield (
            f"  no reuse   {count_text(others, 'tensor')} could have these bytes at another time, and lie elsewhere"
            if others
            else "  no reuse   every other dynamic tensor is alive at the same time"
        )
