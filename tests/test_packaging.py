"""The package lists in pyproject.toml against the folders, and the rule that dependencies point one way."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("cli", "graphs", "runtime")
FILES = [path for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(path: Path, *, top_level: bool) -> set[str]:
    """Modules that a file imports; only those at its top level, outside functions and TYPE_CHECKING, where asked."""
    tree = parsed(path)
    nodes = tree.body if top_level else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


def test_every_folder_with_modules_is_a_listed_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    folders = {f"kgrun.{path.parent.relative_to(ROOT).as_posix().replace('/', '.')}" for path in FILES}
    assert set(settings["packages"]) == folders
    assert settings["package-dir"] == {f"kgrun.{part}": part for part in PARTS}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_say_their_duty_and_fit_one_sitting(path: Path) -> None:
    assert ast.get_docstring(parsed(path)), "the first line says the file's one duty"
    assert len(path.read_text("utf-8").splitlines()) <= 360


def test_the_architecture_page_names_every_room() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rooms = [p for part in PARTS for p in (ROOT / part).iterdir() if not p.name.startswith(("_", "."))]
    names = [f"{p.name}/" if p.is_dir() else p.name for p in rooms if p.is_dir() or p.suffix == ".py"]
    missing = [name for name in names if f"`{name}" not in page and not name.startswith("data_")]
    assert missing == ["version.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_dependencies_point_one_way(path: Path) -> None:
    forbidden = {"graphs": ("kgrun.runtime", "kgrun.cli"), "runtime": ("kgrun.cli",), "cli": ()}[
        path.relative_to(ROOT).parts[0]
    ]
    if "packing" in path.parts:
        forbidden = ("kgrun",)
    elif path.relative_to(ROOT).parts[:2] == ("runtime", "memory"):
        forbidden = (*forbidden, "kgrun.runtime.devices", "kgrun.runtime.kernels")
    found = {
        name for name in imports(path, top_level=False) for f in forbidden if name == f or name.startswith(f + ".")
    }
    assert not found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_packages_are_imported_late(path: Path) -> None:
    heavy = {"pycuda", "cuda", "llvmlite", "onnx", "rich", "torch", "cupti", "nvmath"}
    if path.is_relative_to(ROOT / "graphs") and not path.name.startswith("data_") and path.name != "launch_folder.py":
        heavy.add("numpy")
    assert not {name.split(".")[0] for name in imports(path, top_level=True)} & heavy


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_holds_every_file_and_builds_without_a_compiler(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tree)], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(tree)],
        env={**os.environ, "CC": "false", "CXX": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("kgrun-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    held = {name for name in names if name.startswith("kgrun/") and not name.endswith((".c", ".h"))}
    tracked = subprocess.run(["git", "ls-files", *PARTS], cwd=tree, capture_output=True, text=True, check=True)
    wanted = {f"kgrun/{name}" for name in tracked.stdout.split() if not name.endswith((".c", ".h"))}
    assert held == wanted
