"""What is installed here, what works, and how to get the rest: the facts behind `kgrun doctor`."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from kgrun.graphs.records import dataclass

Status = Literal["ok", "missing", "broken"]


@dataclass(frozen=True, slots=True)
class Row:
    """One component.

    Attributes:
        version: what was found, None where nothing was.
        why: what needs it.
        install: how to get it, one command a line; None where there is nothing to do.
        detail: what exactly is wrong, where something is.
        part: "base", "cpu", "cuda", "onnx" or "mpi": the group that `abilities` judges.
    """

    component: str
    status: Status
    version: str | None
    why: str
    part: str
    install: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Ability:
    """Something kgrun can or cannot do here, and why not."""

    name: str
    able: bool
    reason: str | None = None


_BASE = (
    ("numpy", "numpy", "arrays, operators on the CPU"),
    ("ml-dtypes", "ml_dtypes", "bfloat16 and fp8"),
    ("pydantic", "pydantic", "checking graph files"),
    ("PyYAML", "yaml", "YAML graph files"),
    ("rich", "rich", "tables on a terminal"),
    ("safetensors", "safetensors", "weights in .safetensors files"),
    ("typer", "typer", "the command line"),
)


def diagnose() -> list[Row]:
    """Look at everything kgrun can use; never raises. Takes about a second, imports and tries what it finds."""
    rows = [_python()]
    rows += [_package(name, module, why, "base", "pip install --upgrade kgrun") for name, module, why in _BASE]
    checks: tuple[Callable[[], list[Row]], ...] = (
        *(_native, _compiler, _headers, _llvmlite, _gpu, _onnx, _mpi, _nccl),
    )
    for check in checks:
        try:
            rows += check()
        except Exception as error:  # a broken installation may fail anywhere
            rows.append(Row(check.__name__.strip("_"), "broken", None, "-", "base", detail=_first_line(error)))
    return rows


def abilities(rows: list[Row]) -> list[Ability]:
    """What can be done with what was found."""
    return [
        _ability("plan and validate graphs", rows, "base"),
        _ability("run builtin operators on the CPU", rows, "base"),
        _ability("run CUDA kernels on the CPU", rows, "base", "compile", "cpu"),
        _ability("run on a GPU", rows, "base", "compile", "cuda"),
        _ability("import ONNX models", rows, "base", "onnx"),
        _ability("run several ranks on the CPU", rows, "base", "mpi"),
    ]


def _ability(name: str, rows: list[Row], *parts: str) -> Ability:
    bad = [row for row in rows if row.part in parts and row.status != "ok"]
    return Ability(name, not bad, ", ".join(f"{row.component} is {row.status}" for row in bad) or None)


def document(rows: list[Row]) -> dict[str, Any]:
    """`doctor --json`."""
    return {
        "platform": platform.platform(),
        "components": [asdict(row) for row in rows],
        "abilities": [asdict(each) for each in abilities(rows)],
    }


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _python() -> Row:
    return Row("Python", "ok", platform.python_version(), "everything", "base")  # an older one does not get this far


def _package(name: str, module: str, why: str, part: str, install: str) -> Row:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            return Row(name, "missing", None, why, part, install)
        return Row(name, "broken", _version(name), why, part, install, _first_line(error))
    except Exception as error:  # an extension module of another platform, a missing library
        return Row(name, "broken", _version(name), why, part, install, _first_line(error))
    return Row(name, "ok", _version(name), why, part)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _native() -> list[Row]:
    why = "plans of large graphs in a fraction of the time (optional)"
    try:
        importlib.import_module("kgrun.runtime.memory.packing._native")
    except ModuleNotFoundError:
        how = "install a C compiler, then\npip install --force-reinstall --no-deps --no-binary kgrun kgrun"
        return [Row("compiled planner", "missing", None, why, "optional", how)]
    except ImportError as error:
        how = "pip install --force-reinstall --no-deps kgrun"
        return [Row("compiled planner", "broken", None, why, "optional", how, _first_line(error))]
    if os.environ.get("KGRUN_NATIVE") == "0":
        return [Row("compiled planner", "missing", "switched off", why, "optional", "unset KGRUN_NATIVE")]
    return [Row("compiled planner", "ok", "in use", why, "optional")]


def _compiler() -> list[Row]:
    from kgrun.graphs.errors import KgrunError
    from kgrun.runtime.compile import nvrtc

    why, how = "compiling CUDA C", "pip install 'kgrun[compile]'"
    try:
        version = "{}.{}".format(*nvrtc.nvrtc_version())
    except KgrunError as error:
        return [Row("NVRTC", "missing", None, why, "compile", how, error.message)]
    try:
        nvrtc.compile_cuda("__global__ void probe() {}", name="probe.cu", cache=None)
    except KgrunError as error:
        return [Row("NVRTC", "broken", version, why, "compile", how, error.message)]
    return [Row("NVRTC", "ok", version, why, "compile")]


def _headers() -> list[Row]:
    from kgrun.runtime.compile.headers import toolkit_include_dirs

    why = "kernels that include cuda_fp16.h and other CUDA headers"
    found = toolkit_include_dirs()
    if not found:
        return [Row("CUDA headers", "missing", None, why, "compile", "pip install 'kgrun[compile]'")]
    return [Row("CUDA headers", "ok", str(found[0]), why, "compile")]


def _llvmlite() -> list[Row]:
    return [_package("llvmlite", "llvmlite.binding", "CUDA kernels on the CPU", "cpu", "pip install 'kgrun[cpu]'")]


def _onnx() -> list[Row]:
    return [_package("onnx", "onnx", "importing ONNX models", "onnx", "pip install 'kgrun[onnx]'")]


def _mpi() -> list[Row]:
    from kgrun.runtime.collectives.launch import find_mpiexec

    why, how = "ranks on the CPU", "pip install 'kgrun[mpi]'"
    row = _package("mpi4py", "mpi4py", why, "mpi", how)
    found = find_mpiexec()
    if found is None:
        return [row, Row("mpiexec", "missing", None, "`--ranks` on the CPU", "mpi", how)]
    return [row, Row("mpiexec", "ok", found, "`--ranks` on the CPU", "mpi")]


def _nccl() -> list[Row]:
    why, how = "collectives between GPUs (optional)", "pip install 'kgrun[nccl]'"
    row = _package("nccl4py", "nccl", why, "optional", how)
    if row.status != "ok":
        return [row]
    try:
        number = int(importlib.import_module("nccl.bindings.nccl").get_version())
    except Exception as error:  # the bindings raise what their loaders do
        return [row, Row("NCCL", "missing", None, why, "optional", how, _first_line(error))]
    return [row, Row("NCCL", "ok", f"{number // 10000}.{number // 100 % 100}.{number % 100}", why, "optional")]


def _gpu() -> list[Row]:
    from kgrun.runtime.devices.cuda_status import gpu_status

    rows = []
    for found in gpu_status().rows:
        part = "cuda" if found.needed else "optional"
        status: Status = "ok" if found.ok else "missing"
        if found.name == "PyCUDA" and not found.ok:
            rows.append(Row("PyCUDA", "missing", None, "running on a GPU", part, pycuda_recipe()))
        elif found.ok:
            rows.append(Row(found.name, "ok", found.found, "running on a GPU", part))
        else:
            rows.append(Row(found.name, status, None, "running on a GPU", part, found.help, found.found))
    return rows


def pycuda_recipe() -> str:
    """Commands that build PyCUDA on this machine.

    PyCUDA has no wheel. A plain `pip install pycuda` looks for CUDA beside the first `nvcc` of PATH, which a link or a
    wrapper in /usr/local/bin leads astray, and links to libcuda.so and libcurand.so, which containers often lack. These
    commands name the places outright: cuda.h from the CUDA headers, the library from the driver.
    """
    from kgrun.runtime.compile.headers import toolkit_include_dirs

    headers = next((path for path in toolkit_include_dirs() if (path / "cuda.h").is_file()), None)
    driver = next(_driver_libraries(), None)
    lines = ["# needs a C++ compiler"]
    if headers is None:
        lines.append("pip install 'kgrun[compile]'   # brings cuda.h; then run `kgrun doctor` again")
    elif not (headers / "cudaProfiler.h").is_file():
        lines.append("pip install nvidia-cuda-profiler-api   # the one header that the CUDA runtime's package lacks")
    place = str(headers) if headers else "DIR_OF_CUDA_H"
    lines += [
        "pip download --no-deps --no-binary pycuda 'pycuda>=2026.1'",
        "tar xf pycuda-*.tar.gz && cd pycuda-*/",
    ]
    if driver is None:
        lines.append("# install the NVIDIA driver first: libcuda.so.1 was not found")
    source = driver or "/path/to/libcuda.so.1"
    lines += [
        f"mkdir link && ln -s {source} link/libcuda.so",
        f"python configure.py --cuda-inc-dir={place} --cudadrv-lib-dir=$PWD/link --no-cuda-enable-curand",
        "pip install .",
    ]
    return "\n".join(lines)


def _driver_libraries() -> Iterator[Path]:
    folders = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib", "/usr/lib")
    for folder in (*os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), *folders):
        candidate = Path(folder) / "libcuda.so.1"
        if folder and candidate.exists():
            yield candidate
