"""`kgrun plan-memory`: the memory plan alone, of a graph or of a minimalloc CSV; never needs a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kgrun.cli import options as opt
from kgrun.cli import timeout as watchdog
from kgrun.cli.load import GraphOptions, lower_graph
from kgrun.cli.offload import offload_mode, plan_offloaded
from kgrun.cli.output import Output
from kgrun.cli.packing import PlanRequest, export_plan, plan_csv
from kgrun.cli.pictures import Pictures, sketch_lines
from kgrun.cli.progress import phase
from kgrun.cli.render.planners import planner_sections
from kgrun.cli.values import check_number, optional_size, refuse

if TYPE_CHECKING:
    from kgrun.cli.render.table import Table
    from kgrun.runtime.memory.compare_planners import PlannerRow
    from kgrun.runtime.memory.plan_types import MemoryPlan
    from kgrun.runtime.program import Program

File = Annotated[str, opt.argument("GRAPH", "Graph (.json, .yaml, .yml, - for stdin) or packing problem (.csv).")]
Html = Annotated[str | None, opt.option("--html", env=False, metavar="FILE", help="Draw the plan as a web page.")]
Svg = Annotated[str | None, opt.option("--svg", env=False, metavar="FILE", help="Draw the plan as a picture.")]
Compare = Annotated[bool, opt.option("--compare", help="Also plan with every planner and print them side by side.")]
Limit = Annotated[str | None, opt.option("--limit", metavar="SIZE", help="The same as --memory-limit.")]
Export = Annotated[
    str | None, opt.option("--export", env=False, metavar="FILE", help="Write the dynamic buffers and offsets as CSV.")
]


class PaddingRule(StrEnum):
    """Bytes held for a buffer."""

    plain = "plain"
    common = "common"


PaddingOption = Annotated[PaddingRule, opt.option("--padding", help="plain: to 512 bytes; common: at least 32 spare.")]
CommGuard = Annotated[bool, opt.option("--comm-guard", help="Keep free bytes around communication memory.")]
Streams = Annotated[bool, opt.option("--streams", env=False, help="Show streams and the events that order them.")]
SavePlan = Annotated[
    str | None, opt.option("--save-plan", env=False, metavar="DIR", help="Write listings of the plan to a folder.")
]


def command(
    file: File,
    json: opt.Json = False,
    csv: opt.Csv = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
    target: opt.TargetDevice = opt.Target.cuda,
    arch: opt.Arch = None,
    dim: opt.Dims = None,
    strict: opt.Strict = False,
    allow_external_data: opt.ExternalData = False,
    allow_empty: opt.AllowEmpty = False,
    memory: opt.MemoryMode = opt.Memory.planned,
    fuse: opt.Fuse = False,
    memory_limit: opt.MemoryLimit = None,
    limit: Limit = None,
    pool_unit: opt.PoolUnit = None,
    offload: opt.OffloadMode = opt.Offload.auto,
    device_profile: opt.DeviceProfile = None,
    planner: opt.Planner = "auto",
    planner_time: opt.PlannerTime = 2.0,
    max_chunk: opt.MaxChunk = None,
    padding: PaddingOption = PaddingRule.plain,
    comm_guard: CommGuard = False,
    plan_cache: opt.PlanCache = None,
    plan_cache_min: opt.PlanCacheMin = 2000,
    streams: Streams = False,
    save_plan: SavePlan = None,
    export: Export = None,
    html: Html = None,
    svg: Svg = None,
    compare: Compare = False,
    ranks: opt.Ranks = None,
    timeout: opt.Timeout = None,
) -> None:
    """Plan the memory of a graph to the byte, without a device and without reading weights."""
    output = Output(json, csv, quiet, verbose, no_color)
    check_number(planner_time, "--planner-time")
    watchdog.supervise(check_number(timeout, "--timeout", positive=True), json=json)
    size = limit if limit is not None else memory_limit  # the latter may come from the environment
    request = PlanRequest(
        planner, planner_time, optional_size(size, "--memory-limit"), export,
        Pictures(html, svg), compare,
    )  # fmt: skip
    if file.lower().endswith((".csv", ".csv.gz")):
        graphs_only = {
            "--max-chunk": max_chunk, "--pool-unit": pool_unit, "--comm-guard": comm_guard, "--dim": dim,
            "--ranks": ranks, "--save-plan": save_plan, "--streams": streams, "--plan-cache": plan_cache,
            "--fuse": fuse, "--padding": padding is not PaddingRule.plain, "--memory": memory is not opt.Memory.planned,
        }  # fmt: skip
        refuse(graphs_only, "graphs", "leave it out: a packing problem has its sizes and lives as they are")
        plan_csv(Path(file), output, request)
        return
    if ranks is not None:
        dim = [*(dim or ()), f"world_size={ranks}"]
    graph_options = GraphOptions(file, dim, strict, allow_external_data, allow_empty, arch)
    with phase(f"planning {file}", output):
        program = lower_graph(graph_options, target.value, memory.value, fuse=fuse)
        from kgrun.runtime.memory.plan import plan_memory

        pack = partial(
            plan_memory,
            mode=memory.value,
            planner=planner,
            time_limit=planner_time,
            max_chunk=optional_size(max_chunk, "--max-chunk"),
            pool_unit=optional_size(pool_unit, "--pool-unit"),
            padding=padding.value,
            comm_guard=comm_guard,
            cache_dir=Path(plan_cache) if plan_cache is not None else None,
            cache_minimum=plan_cache_min,
        )
        rows = request.rows(program)
        program, plan = plan_offloaded(program, pack, request.limit, offload_mode(memory, offload), device_profile)
    write_files(request, program, plan)
    if save_plan is not None:
        from kgrun.cli.plan_listings import save_listings

        watchdog.commit()
        save_listings(Path(save_plan), program, plan)
    show_plan(output, program, plan, rows, streams=streams)


def write_files(request: PlanRequest, program: Program, plan: MemoryPlan) -> None:
    """Write the files that were asked for."""
    if request.export is not None:
        watchdog.commit()
        export_plan(Path(request.export), plan)
    if request.pictures.wanted:
        from kgrun.cli.render.memory_map import plan_map

        request.pictures.draw(plan_map(program, plan))


def show_plan(
    output: Output, program: Program, plan: MemoryPlan, planners: Sequence[PlannerRow], *, streams: bool = False
) -> None:
    """Print the plan in the form asked for."""
    from kgrun.cli.render import documents
    from kgrun.cli.render.streams import stream_rows, stream_sections

    def report() -> Iterator[Table | str]:
        from kgrun.cli.render import memory as memory_part
        from kgrun.cli.render.memory_map import plan_map
        from kgrun.cli.render.offload import offload_sections
        from kgrun.cli.render.text import count_text

        steps = count_text(len(program.steps), "step")
        yield f"{program.graph.source.name} for {program.target}: {steps}, {count_text(len(program.buffers), 'buffer')}"
        yield memory_part.placement_table(plan)
        yield from memory_part.decision_sections(program.decisions)
        yield from memory_part.memory_sections(program, plan)
        yield from offload_sections(program)
        yield from sketch_lines(plan_map(program, plan))
        if plan.note is not None:
            yield plan.note
        yield from planner_sections(planners)
        if streams:
            yield from stream_sections(program)
        yield from memory_part.warning_sections(documents.all_warnings(program), output.verbose)

    output.emit(
        document=lambda: (
            documents.plan_document(program, plan)
            | documents.planner_rows(planners)
            | (stream_rows(program) if streams else {})
        ),
        report=report,
        rows=lambda: documents.tensor_rows(plan),
    )
