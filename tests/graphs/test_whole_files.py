"""Files that appear whole or not at all, also where several threads write, and with the permissions of any new file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kgrun.graphs.whole_files import beside, replacing


def test_threads_replace_one_file_and_leave_the_process_its_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = os.umask(0o027)
    try:
        monkeypatch.delattr(os, "umask")  # asking for it changes it for a moment, for all threads
        path = tmp_path / "f"

        def write(number: int) -> None:
            with replacing(path) as file:
                file.write(bytes([number]) * 10_000)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(64)))
    finally:
        monkeypatch.undo()
        assert os.umask(mask) == 0o027
    assert len(set(path.read_bytes())) == 1
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


def test_names_beside_a_path_are_its_own_hidden_and_new(tmp_path: Path) -> None:
    names = {beside(tmp_path / ("x" * 200)).name for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith(".xxx") and len(name) < 130 for name in names)
