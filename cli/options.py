"""Options that several commands share, as annotated types; each has an environment twin `KGRUN_…`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer


class Memory(StrEnum):
    """Memory modes."""

    planned = "planned"
    pool = "pool"
    none = "none"


class Offload(StrEnum):
    """Ways of choosing what waits on the host."""

    auto = "auto"
    off = "off"
    manual = "manual"
    seeds = "seeds"


class RunMemory(StrEnum):
    """Memory modes of a run."""

    planned = "planned"
    pool = "pool"
    none = "none"
    single = "single"


class Target(StrEnum):
    """Devices that a plan can be made for without having one."""

    cpu = "cpu"
    cuda = "cuda"


class StreamChoice(StrEnum):
    """Where streams come from."""

    file = "file"
    auto = "auto"


class CacheState(StrEnum):
    """What a kernel that is timed finds in the cache."""

    hot = "hot"
    cold = "cold"


class PrecisionChoice(StrEnum):
    """What tensor cores may round to."""

    float32 = "float32"
    tf32 = "tf32"


class TimingChoice(StrEnum):
    """Ways of timing a kernel."""

    auto = "auto"
    events = "events"
    graph = "graph"
    cupti = "cupti"


def option(*flags: str, help: str, panel: str | None = None, env: bool = True, **settings: Any) -> Any:
    """A typer option; its environment variable is KGRUN_ and its long name."""
    long = next(flag for flag in flags if flag.startswith("--"))
    name = f"KGRUN_{long.split('/')[0][2:].replace('-', '_').upper()}"
    return typer.Option(
        *flags, help=help, rich_help_panel=panel, envvar=name if env else None, show_envvar=False, **settings
    )


def argument(metavar: str, help: str) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help)


GraphFile = Annotated[str, argument("GRAPH", "Graph file: .json, .yaml, .yml, or an .onnx model; - is standard input.")]


def _print_metrics(wanted: bool) -> None:
    if wanted:
        from kgrun.cli.output import Output
        from kgrun.cli.render.metrics import metric_sections

        Output(verbose=True).emit(document=dict, report=metric_sections)
        raise typer.Exit


MoreGraphs = Annotated[
    list[str] | None, argument("[GRAPH]...", "More graphs, run after it in the same session (`from_graph`).")
]

# What is printed, and where to.
HelpMetrics = Annotated[
    bool,
    option(
        "--help-metrics", env=False, is_eager=True, callback=_print_metrics,
        help="Say what each column and each member of the JSON document means, and exit.",
    ),
]  # fmt: skip
Json = Annotated[bool, option("--json", env=False, help="Print one JSON document on stdout, also on failure.")]
Csv = Annotated[str | None, option("--csv", env=False, metavar="FILE", help="Write a row each as CSV; - is stdout.")]
Quiet = Annotated[bool, option("--quiet", "-q", help="Print no report, only errors.")]
Verbose = Annotated[
    bool, option("--verbose", "-v", help="Print every row, and progress also where stderr is no terminal.")
]
NoColor = Annotated[bool, option("--no-color", help="No colours and no terminal codes; NO_COLOR does the same.")]

# What the graph is bound with.
Dims = Annotated[
    list[str] | None, option("--dim", env=False, metavar="NAME=INT", help="Value of a dimension; may be repeated.")
]
Sweep = Annotated[
    list[str] | None,
    option("--sweep", env=False, metavar="NAME=SIZES", help="Run at each of several sizes in one session: N=16,32."),
]
Strict = Annotated[bool, option("--strict", help="Refuse what is otherwise only warned of.")]
ExternalData = Annotated[bool, option("--allow-external-data", help="Allow data files outside the graph's folder.")]
AllowEmpty = Annotated[bool, option("--allow-empty", help="Accept a graph without nodes.")]
Arch = Annotated[
    str | None, option("--arch", metavar="SM", help="Architecture whose launch limits hold: sm_90 (default), sm_80, …")
]
CompileTarget = Annotated[
    str | None,
    option("--target", env=False, metavar="SM", help="Also compile each kernel for this architecture: sm_90, sm_80, …"),
]
TargetDevice = Annotated[Target, option("--target", help="Kind of device to lower for; none needs to be there.")]

# How memory is planned.
MemoryMode = Annotated[
    Memory,
    option("--memory", help="planned packs by lifetime, pool allocates step by step, none shares nothing."),
]
RunMemoryMode = Annotated[
    RunMemory,
    option(
        "--memory",
        help="planned packs by lifetime, pool allocates, none shares nothing, single: node by node.",
    ),
]
MemoryLimit = Annotated[
    str | None, option("--memory-limit", metavar="SIZE", help="Most bytes the run may take: 4GiB, 4GB, 4096.")
]
HostMemoryLimit = Annotated[
    str | None,
    option("--host-memory-limit", metavar="SIZE", help="Most host memory to hold for copies, outputs, pinned blocks."),
]
PoolUnit = Annotated[
    str | None, option("--pool-unit", metavar="SIZE", help="Bytes that --memory pool grows by (default: 512MiB).")
]
OffloadMode = Annotated[
    Offload,
    option("--offload", help="Move tensors to the host and back to stay within the limit: auto, off, manual, seeds."),
]
DeviceProfile = Annotated[
    str | None,
    option("--device-profile", env=False, metavar="NAME|FILE", help="Times for --offload: h200, cpu, a --json report."),
]
Planner = Annotated[str, option("--planner", metavar="NAME", help="Planning method.")]
PlannerTime = Annotated[float, option("--planner-time", metavar="S", help="Seconds the planner may search.")]
MaxChunk = Annotated[
    str | None, option("--max-chunk", metavar="SIZE", help="Let no buffer cross a multiple of so many bytes.")
]
PlanCache = Annotated[
    str | None,
    option("--plan-cache", metavar="DIR", help="Keep plans of large graphs there, and take them from there."),
]
PlanCacheMin = Annotated[int, option("--plan-cache-min", metavar="N", min=0, help="Steps from which a plan is kept.")]
Timeout = Annotated[float | None, option("--timeout", metavar="S", help="End after S seconds with exit code 9.")]

Ranks = Annotated[
    int | None,
    option("--ranks", metavar="N", min=1, max=4096, help="Run as N processes of this host; CPU ranks through mpiexec."),
]

# What is run, how often, on what.
Device = Annotated[str, option("--device", metavar="DEVICE", help="auto, cpu, cuda, or cuda:N.")]
Inputs = Annotated[
    list[str] | None,
    option(
        "--input", env=False, metavar="NAME=FILE", help="An input: .npy, .npz#KEY, .safetensors#KEY; may be repeated."
    ),
]
InputsFile = Annotated[
    str | None, option("--inputs", env=False, metavar="FILE", help="Inputs by name: .npz or .safetensors.")
]
Queues = Annotated[
    list[str] | None,
    option(
        "--queue",
        env=False,
        metavar="NAME=DATA",
        help="A queue's data: train=digits.npz,shuffle=1,epochs=2,last=pad.",
    ),
]
LoadParameters = Annotated[
    str | None,
    option("--load-parameters", env=False, metavar="FILE", help="Parameters by name: .safetensors or .npz."),
]
Seed = Annotated[int, option("--seed", min=0, metavar="N", help="Seed of generated inputs and parameters.")]
Iterations = Annotated[
    int | None, option("--iterations", min=1, metavar="N", help="Measured runs (default: 10 on a GPU, 1 on the CPU).")
]
Warmup = Annotated[
    int | None,
    option("--warmup", min=0, metavar="N", help="Runs before them (default: until stable on a GPU, 0 on the CPU)."),
]
Duration = Annotated[float | None, option("--duration", metavar="S", help="Measure for S seconds at least.")]
Samples = Annotated[
    bool, option("--samples", env=False, help="Put every time taken into the JSON document, for `kgrun diff`.")
]
GraphReplay = Annotated[bool, option("--graph/--no-graph", help="Run as one CUDA graph, or kernel by kernel.")]
Streams = Annotated[
    StreamChoice, option("--streams", help="file keeps the file's streams, auto also tries branches side by side.")
]
Fuse = Annotated[bool, option("--fuse", help="On a GPU, compute elementwise calls in a row in one kernel.")]
Cache = Annotated[CacheState, option("--cache", help="cold empties the GPU's cache before everything that is timed.")]
TimingMethod = Annotated[
    TimingChoice, option("--timing", help="How kernels are timed; auto takes the best way for each.")
]
Roofline = Annotated[
    bool, option("--roofline/--no-roofline", help="Measure the GPU's peaks, once a GPU, and compare kernels with them.")
]
Check = Annotated[
    list[str] | None,
    option("--check", env=False, metavar="LIST", help="Watch: bounds,race,barrier,init,nan,readonly,redzone; all."),
]
Schedule = Annotated[
    str, option("--schedule", help="Order of a kernel's threads on the CPU: forward, reverse, random:SEED.")
]
AllowSkip = Annotated[
    bool, option("--allow-skip", help="Leave out kernels that cannot run on the device, and what needs them.")
]

# What is written while the graph runs.
DumpNames = Annotated[
    list[str] | None,
    option("--dump", env=False, metavar="NAMES", help="Write tensors, or what nodes make, to files: a,b; or all."),
]
DumpDir = Annotated[str | None, option("--dump-dir", env=False, metavar="DIR", help="Folder of --dump.")]
DumpIterations = Annotated[
    str | None,
    option("--dump-iterations", env=False, metavar="LIST", help="Iterations of --dump: 0 (default), 0|3-5, all."),
]
DumpConfigFile = Annotated[
    str | None, option("--dump-config", env=False, metavar="FILE", help="Dump as a JSON configuration says.")
]

# What is found out when something fails, or is slow to start.
ReuseOutputs = Annotated[
    bool, option("--reuse-outputs", help="Node by node: write outputs into the same memory in every run.")
]
SyncEach = Annotated[
    bool, option("--sync-each", help="Wait after each kernel, so that a fault names the kernel it is of.")
]
Repro = Annotated[
    str | None,
    option("--repro", env=False, metavar="DIR", help="On failure write what runs it again: graph, sources, data."),
]
ReproAlways = Annotated[
    bool, option("--repro-always", env=False, help="Write it also when the run does not fail, with its outputs.")
]
ColdReport = Annotated[bool, option("--cold-report", env=False, help="Show where the time to the first result goes.")]

Precision = Annotated[
    PrecisionChoice,
    option("--precision", help="Of float32 products on a GPU: float32, or tf32 (10-bit inputs, tensor cores)."),
]

# What becomes of the outputs.
Expected = Annotated[
    str | None,
    option(
        "--expected", env=False, metavar="FILE", help="Expected outputs (.npz, .safetensors); exit 8 where they differ."
    ),
]
Rtol = Annotated[float, option("--rtol", metavar="X", help="Relative tolerance of --expected and --compare-with.")]
Atol = Annotated[float, option("--atol", metavar="X", help="Absolute tolerance of --expected and --compare-with.")]
CompareWith = Annotated[
    str | None,
    option(
        "--compare-with", env=False, metavar="REFERENCE",
        help="Find the first node that differs: cpu, onnxruntime (for ONNX models), or arrays from .npz, .safetensors.",
    ),
]  # fmt: skip
EqualNan = Annotated[bool, option("--equal-nan", help="NaN equals NaN in --expected and --compare-with.")]
OutputDir = Annotated[
    str | None, option("--output-dir", env=False, metavar="DIR", help="Write each output as DIR/NAME.npy.")
]
SaveOutputs = Annotated[
    str | None, option("--save-outputs", env=False, metavar="FILE", help="Write all outputs to one .npz.")
]
SaveParameters = Annotated[
    str | None,
    option("--save-parameters", env=False, metavar="FILE", help="Write all parameters as the run leaves them."),
]
Trace = Annotated[str | None, option("--trace", env=False, metavar="FILE", help="Write a Chrome/Perfetto trace.")]
