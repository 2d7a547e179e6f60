"""`doctor`: what is there, what is missing, how to get it; a broken installation never breaks the command."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from kgrun.runtime.devices import doctor
from tests.runtime.devices.fake_nccl import install


def test_every_component_says_what_it_is_for(kgrun: Any) -> None:
    document = kgrun("doctor", "--json").json()
    rows = {row["component"]: row for row in document["components"]}
    assert len(rows) == len(document["components"])
    assert rows["numpy"]["status"] == "ok"
    assert all(row["why"] for row in rows.values())
    assert all(row["install"] or row["detail"] for row in rows.values() if row["status"] != "ok")
    able = {each["name"]: each["able"] for each in document["abilities"]}
    assert able["run builtin operators on the CPU"] is True


def test_text_names_what_to_install(kgrun: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = doctor.Row("llvmlite", "missing", None, "CUDA kernels on the CPU", "cpu", "pip install 'kgrun[cpu]'")
    monkeypatch.setattr(doctor, "diagnose", lambda: [row])
    lines = kgrun("doctor").out.splitlines()
    at = lines.index("llvmlite is missing")
    assert lines[at + 1] == "  pip install 'kgrun[cpu]'"
    assert "run CUDA kernels on the CPU: no, llvmlite is missing" in lines
    assert "run builtin operators on the CPU: yes" in lines


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (ModuleNotFoundError("No module named 'yaml'", name="yaml"), "missing"),
        (ModuleNotFoundError("No module named '_yaml'", name="_yaml"), "broken"),
        (ImportError("libyaml.so: cannot open shared object file"), "broken"),
        (OSError("invalid ELF header"), "broken"),
    ],
)
def test_package_that_does_not_import(monkeypatch: pytest.MonkeyPatch, raised: Exception, status: str) -> None:
    def fail(name: str) -> Any:
        if name == "yaml":
            raise raised
        return original(name)

    original = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", fail)
    row = next(row for row in doctor.diagnose() if row.component == "PyYAML")
    assert row.status == status
    assert row.install == "pip install --upgrade kgrun"


def test_check_that_fails_is_a_broken_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def _headers() -> list[doctor.Row]:
        raise PermissionError("no access")

    monkeypatch.setattr(doctor, "_headers", _headers)
    row = next(row for row in doctor.diagnose() if row.component == "headers")
    assert (row.status, row.detail) == ("broken", "no access")


@pytest.mark.parametrize("profiler", [True, False])
def test_pycuda_recipe_names_the_places_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profiler: bool
) -> None:
    from kgrun.runtime.compile import headers

    (tmp_path / "cuda.h").touch()
    (tmp_path / "libcuda.so.1").touch()
    if profiler:
        (tmp_path / "cudaProfiler.h").touch()
    monkeypatch.setattr(headers, "toolkit_include_dirs", lambda: [tmp_path])
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}::")
    lines = doctor.pycuda_recipe().splitlines()
    assert f"mkdir link && ln -s {tmp_path}/libcuda.so.1 link/libcuda.so" in lines
    assert f"python configure.py --cuda-inc-dir={tmp_path} --cudadrv-lib-dir=$PWD/link --no-cuda-enable-curand" in lines
    assert any("nvidia-cuda-profiler-api" in line for line in lines) != profiler
    assert lines[-1] == "pip install ."


def test_what_ranks_need_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setitem(sys.modules, "nccl", None)
    rows = {row.component: row for row in doctor.diagnose()}
    assert (rows["mpiexec"].status, rows["mpiexec"].install) == ("missing", "pip install 'kgrun[mpi]'")
    assert (rows["nccl4py"].status, rows["nccl4py"].part) == ("missing", "optional")
    able = {each.name: each for each in doctor.abilities(list(rows.values()))}["run several ranks on the CPU"]
    assert not able.able
    assert "mpiexec is missing" in str(able.reason)


def test_the_version_of_nccl_is_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    found = {row.component: (row.status, row.version) for row in doctor._nccl()}
    assert found["NCCL"] == ("ok", "2.27.3")
    monkeypatch.setattr(sys.modules["nccl.bindings.nccl"], "get_version", lambda: [].pop())
    broken = {row.component: row for row in doctor._nccl()}["NCCL"]
    assert (broken.status, broken.detail) == ("missing", "pop from empty list")
