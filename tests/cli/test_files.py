"""Files that commands write: whole or absent, under names that cannot leave the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.cli.arrays import write_bundle, write_folder
from kgrun.cli.output import replacing, write_text
from kgrun.graphs.errors import UsageError


def test_outputs_become_files_with_safe_names(tmp_path: Path) -> None:
    outputs = {"a/../b": np.arange(3), "file": np.float32(1).reshape(()), "..": np.zeros(0)}
    write_folder(tmp_path / "new" / "deep", outputs)
    written = sorted(path.name for path in (tmp_path / "new" / "deep").iterdir())
    assert len(written) == 3
    assert all(name.endswith(".npy") and "/" not in name and not name.startswith(".") for name in written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]


def test_bundle_keeps_names(tmp_path: Path) -> None:
    outputs = {"a/b": np.arange(3), "file": np.ones(2)}
    write_bundle(tmp_path / "out.npz", outputs)
    with np.load(tmp_path / "out.npz") as archive:
        assert set(archive.files) == {"a/b", "file"}
        assert archive["a/b"].tolist() == [0, 1, 2]


def test_nothing_is_left_of_a_folder_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kgrun.graphs.data_save as data_save

    def fail_on_second(path: Path, array: Any, original: Any = data_save.save_npy) -> None:
        if path.name == "b.npy":
            raise MemoryError
        original(path, array)

    monkeypatch.setattr(data_save, "save_npy", fail_on_second)
    with pytest.raises(MemoryError):
        write_folder(tmp_path, {"a": np.ones(1), "b": np.ones(1)})
    assert list(tmp_path.iterdir()) == []


def test_replaced_file_is_whole_or_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as target:
            target.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text(encoding="utf-8") == "old"
    write_text(path, "né")
    assert path.read_text(encoding="utf-8") == "né"
    assert [each.name for each in tmp_path.iterdir()] == ["report.csv"]
    mask = os.umask(0o022)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_place_that_cannot_be_written_is_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for action in (
        lambda: write_text(tmp_path / "missing" / "x.csv", ""),
        lambda: write_folder(tmp_path / "file", {"a": np.ones(1)}),
        lambda: write_bundle(tmp_path / "missing" / "x.npz", {"a": np.ones(1)}),
    ):
        with pytest.raises(UsageError, match="cannot write") as caught:
            action()
        assert caught.value.exit == 2


def test_device_file_is_written_to(tmp_path: Path) -> None:
    write_text(Path(os.devnull), "gone")
    assert not Path(os.devnull).is_file()


def test_csv_of_a_command_goes_to_a_file_or_to_stdout(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    path = graph_file()
    header = "name,role,dtype,shape,nbytes,output,discovered\n"
    out = kgrun("validate", path, "--csv", "-")
    assert out.out.startswith(header + "x,input,float32,8,32,False,False\n")
    both = kgrun("validate", path, "--csv", tmp_path / "t.csv", "--json")
    assert both.json()["ok"] is True
    assert (tmp_path / "t.csv").read_text(encoding="utf-8") == out.out


def test_two_documents_on_stdout_are_refused(kgrun: Any, graph_file: Any) -> None:
    result = kgrun("validate", graph_file(), "--csv", "-", "--json")
    assert result.code == 2
    assert result.json()["error"]["message"] == "--json and --csv - both write to standard output"


def test_a_file_that_cannot_be_written_is_named_where_it_was_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the folder where it was made, which is gone by then."""
    import kgrun.graphs.data_save as data_save

    def full(path: Path, array: Any) -> None:
        raise UsageError(f"cannot write {path}: No space left on device", code="KG270")

    monkeypatch.setattr(data_save, "save_npy", full)
    with pytest.raises(UsageError) as caught:
        write_folder(tmp_path / "out", {"a": np.ones(1)})
    assert caught.value.message == f"cannot write {tmp_path / 'out' / 'a.npy'}: No space left on device"
    assert (caught.value.code, list((tmp_path / "out").iterdir())) == ("KG270", [])


@pytest.mark.parametrize(
    "words",
    [
        ("execute", "missing.json", "--csv"),
        ("execute", "missing.json", "--trace"),
        ("execute", "missing.json", "--save-outputs"),
        ("execute", "missing.json", "--save-parameters"),
        ("execute", "missing.json", "other.json", "--save-outputs"),
        ("diff", "missing.json", "other.json", "--markdown"),
        ("diff", "missing.json", "other.json", "--junit"),
    ],
)
def test_a_place_that_is_not_there_is_told_before_anything_is_read(
    kgrun: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    error = kgrun(*words, tmp_path / "no" / "x.npz", "--json").json()["error"]
    assert (error["code"], error["exit"]) == ("KG270" if "save" in words[-1] else "KG258", 2)
    assert error["message"] == f"cannot write {tmp_path / 'no' / 'x.npz'}: there is no folder {tmp_path / 'no'}"


def test_a_folder_that_the_command_makes_may_hold_its_files(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    out = tmp_path / "new"
    words = ["--device", "cpu", "--output-dir", out, "--csv", out / "k.csv", "--save-outputs", out / "all.npz"]
    assert kgrun("execute", graph_file(), *words).code == 0
    assert sorted(path.name for path in out.iterdir()) == ["all.npz", "k.csv", "y.npy"]


@pytest.mark.parametrize("option", ["--output-dir", "--dump-dir"])
def test_a_folder_that_cannot_be_is_told_before_anything_is_read(kgrun: Any, tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    words = ["--dump", "all"] if option == "--dump-dir" else []
    for folder in (tmp_path / "file", tmp_path / "file" / "a" / "b"):
        error = kgrun("execute", "missing.json", *words, option, folder, "--json").json()["error"]
        assert (error["code"], error["exit"]) == ("KG258", 2)
        assert error["message"] == f"cannot write to {folder}: {tmp_path / 'file'} is no folder"
