"""`kgrun explain`: one kernel, one tensor, or the peak of a graph: its place in the memory plan, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from kgrun.cli import options as opt
from kgrun.cli import timeout as watchdog
from kgrun.cli.load import GraphOptions, lower_graph
from kgrun.cli.offload import offload_mode, read_profile
from kgrun.cli.output import Output
from kgrun.cli.progress import phase
from kgrun.cli.values import check_number, optional_size
from kgrun.graphs.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from kgrun.cli.render.table import Table
    from kgrun.runtime.program import Program

Explained = TypeVar("Explained")
Name = Annotated[
    str | None,
    opt.argument("NAME", "A node, step, tensor or workspace as reports name it; the memory peak if left out."),
]


def command(
    file: opt.GraphFile,
    name: Name = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
    target: opt.TargetDevice = opt.Target.cuda,
    arch: opt.Arch = None,
    dim: opt.Dims = None,
    allow_external_data: opt.ExternalData = False,
    memory: opt.MemoryMode = opt.Memory.planned,
    fuse: opt.Fuse = False,
    memory_limit: opt.MemoryLimit = None,
    offload: opt.OffloadMode = opt.Offload.auto,
    device_profile: opt.DeviceProfile = None,
    planner: opt.Planner = "auto",
    planner_time: opt.PlannerTime = 2.0,
    timeout: opt.Timeout = None,
) -> None:
    """Explain a kernel or tensor: its launch, its lifetime, who shares its bytes and why. Without NAME: the peak."""
    output = Output(json, None, quiet, verbose, no_color)
    check_number(planner_time, "--planner-time")
    watchdog.supervise(check_number(timeout, "--timeout", positive=True), json=json)
    options = GraphOptions(file, dim, allow_external_data=allow_external_data, arch=arch)
    with phase(f"planning {file}", output):
        program = lower_graph(options, target.value, memory.value, fuse=fuse)
        from kgrun.runtime.memory.offload.fit import plan_within
        from kgrun.runtime.memory.plan import plan_memory

        pack = partial(plan_memory, mode=memory.value, planner=planner, time_limit=planner_time)
        limit = optional_size(memory_limit, "--memory-limit")
        program, plan = plan_within(program, pack, limit, offload_mode(memory, offload), read_profile(device_profile))
    from kgrun.cli.render import explain as part
    from kgrun.cli.render.offload import residency_lines, residency_row
    from kgrun.runtime.memory.explain import explain_tensor
    from kgrun.runtime.memory.explain_kernel import explain_kernel
    from kgrun.runtime.memory.explain_peak import explain_peak

    peak = explain_peak(program, plan) if name is None else None
    kernel = found(lambda: explain_kernel(program, plan, name)) if name is not None else None
    tensor = found(lambda: explain_tensor(program, plan, name)) if name is not None else None
    if name is not None and kernel is None and tensor is None:
        raise no_such_name(program, name)

    def report() -> Iterator[Table | str]:
        yield from part.kernel_lines(kernel) if kernel is not None else ()
        yield from ("",) if kernel is not None and tensor is not None else ()
        yield from part.tensor_lines(tensor) if tensor is not None else ()
        yield from residency_lines(program, name)
        yield from part.peak_sections(peak) if peak is not None else ()

    def document() -> dict[str, Any]:
        made = part.explain_document(program, kernel, tensor, peak)
        return made | ({"tensor": made["tensor"] | residency_row(program, name)} if tensor is not None else {})

    output.emit(document=document, report=report)


def found(explain: Callable[[], Explained]) -> Explained | None:
    """What `explain` returns, None where nothing has that name (KG259)."""
    try:
        return explain()
    except UsageError as error:
        if error.code != "KG259":
            raise
        return None


def no_such_name(program: Program, name: str) -> UsageError:
    """The error for a name that neither kernels nor tensors have."""
    known = [*(node.name for node in program.graph.nodes), *program.graph.tensors]
    help = did_you_mean(name, known) or "`kgrun validate -v` lists nodes and tensors"
    return UsageError(f"the graph has no kernel or tensor {name!r}", code="KG259", help=help)
