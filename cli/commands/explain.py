"""`kgrun explain`: one kernel or one tensor of a graph, with its place in the memory plan and the reasons for it."""

from __future__ import annotations

from typing import Annotated

from kgrun.cli import options as opt
from kgrun.cli import timeout as watchdog
from kgrun.cli.load import GraphOptions, lower_graph
from kgrun.cli.output import Output
from kgrun.cli.values import check_number
from kgrun.graphs.errors import UsageError, did_you_mean


def command(
    file: opt.GraphFile,
    name: Annotated[str, opt.argument("NAME", "A node, a tensor, or a step or workspace as reports name them.")],
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
    target: opt.TargetDevice = opt.Target.cuda,
    arch: opt.Arch = None,
    dim: opt.Dims = None,
    allow_external_data: opt.ExternalData = False,
    memory: opt.MemoryMode = opt.Memory.planned,
    planner: opt.Planner = "auto",
    planner_time: opt.PlannerTime = 2.0,
    timeout: opt.Timeout = None,
) -> None:
    """Explain one kernel or tensor: its launch, its lifetime, who shares its bytes and why."""
    output = Output(json, None, quiet, verbose, no_color)
    check_number(planner_time, "--planner-time")
    watchdog.supervise(check_number(timeout, "--timeout", positive=True), json=json)
    options = GraphOptions(file, dim, allow_external_data=allow_external_data, arch=arch)
    program = lower_graph(options, target.value, memory.value)
    from kgrun.cli.render import explain as part
    from kgrun.runtime.memory.plan import plan_memory

    plan = plan_memory(program, mode=memory.value, planner=planner, time_limit=planner_time)
    kernel = part.kernel_facts(program, plan, name)
    tensor = part.tensor_facts(program, plan, name)
    if kernel is None and tensor is None:
        known = [*(node.name for node in program.graph.nodes), *program.graph.tensors]
        help = did_you_mean(name, known) or "`kgrun validate -v` lists nodes and tensors"
        raise UsageError(f"the graph has no kernel or tensor {name!r}", code="KG259", help=help)
    output.emit(
        document=lambda: part.explain_document(program, kernel, tensor),
        report=lambda: part.explain_lines(kernel, tensor),
    )
