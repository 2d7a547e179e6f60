"""The compile cache: round trips, damage, eviction, eight processes at once, an unwritable folder."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from kgrun.runtime.compile.cache import CompileCache, default_directory, digest_key

KEY = digest_key(["a"])


def test_what_was_put_comes_back(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "deep" / "er")
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"payload")
    assert cache.get(KEY) == b"payload"
    assert cache.put(KEY, b"") is True
    assert cache.get(KEY) == b""


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "foreign"])
def test_a_damaged_entry_is_absent_and_is_rebuilt(tmp_path: Path, damage: str) -> None:
    cache = CompileCache(tmp_path)
    cache.put(KEY, bytes(range(256)))
    (path,) = tmp_path.glob("??/*.bin")
    data = path.read_bytes()
    broken = {"truncated": data[:-1], "flipped": data[:-1] + b"\0", "emptied": b"", "foreign": b"x" * 400}
    path.write_bytes(broken[damage])
    assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, b"again")
    assert cache.get(KEY) == b"again"


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path, limit_bytes=5_000)
    keys = [digest_key([str(index)]) for index in range(5)]
    for age, key in enumerate(keys[:4]):
        cache.put(key, bytes(1_000))
        (path,) = tmp_path.glob(f"{key[:2]}/{key[2:]}.bin")
        os.utime(path, (1_000 + age, 1_000 + age))
    cache.get(keys[0])  # now the youngest
    cache.put(keys[4], bytes(1_000))
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True, True]
    assert cache.size_bytes() <= 5_000


def test_a_put_looks_into_one_folder_while_the_cache_is_far_from_full(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path, limit_bytes=1 << 20)
    keys = [f"{first:02x}" + "0" * 62 for first in range(256)]
    for key in keys[:-1]:
        cache.put(key, bytes(1_500))
    elsewhere = tmp_path / keys[0][:2] / ".tmp-old"
    elsewhere.write_bytes(b"")
    os.utime(elsewhere, (0, 0))  # removed by whoever looks there
    cache.put(keys[-1], bytes(1_500))
    assert elsewhere.exists()
    cache.put("ff" + "1" * 62, bytes(1_500))  # two in one folder of 256 suggest 770 kB: all are counted
    assert not elsewhere.exists()
    assert all(cache.get(key) for key in keys)


def test_many_small_entries_stay_within_the_limit(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path, limit_bytes=50_000)
    for index in range(500):
        cache.put(digest_key([str(index)]), bytes(200))
    assert 40_000 < cache.size_bytes() <= 50_000


def test_abandoned_temporary_files_are_removed(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    cache.put(KEY, b"x")
    old = tmp_path / KEY[:2] / ".tmp-old"
    young = tmp_path / KEY[:2] / ".tmp-young"
    for path in (old, young):
        path.write_bytes(b"")
    os.utime(old, (0, 0))
    cache.put(KEY, b"y")
    assert (old.exists(), young.exists()) == (False, True)


def test_a_folder_that_cannot_be_written_means_no_cache(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("a file where the folder should be")
    cache = CompileCache(blocker / "cache")
    assert cache.put(KEY, b"x") is False
    assert cache.get(KEY) is None


def _hammer(directory: Path, worker: int) -> None:
    cache = CompileCache(directory, limit_bytes=40_000)
    for turn in range(60):
        key = digest_key([str((turn * 7 + worker) % 20)])
        found = cache.get(key)
        expected = key.encode() * 50
        if found is not None and found != expected:
            os._exit(1)
        cache.put(key, expected)
    os._exit(0)


def test_eight_processes_never_see_a_torn_entry(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_hammer, args=(tmp_path, worker)) for worker in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert not list(tmp_path.glob("??/.*"))
    assert CompileCache(tmp_path).size_bytes() <= 40_000 + 8 * 3_300


def test_keys_are_of_the_list_not_of_the_joined_text() -> None:
    assert len({digest_key(parts) for parts in (["ab"], ["a", "b"], ["", "ab"], [b"ab", ""])}) == 4


def test_the_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KGRUN_CACHE_DIR", str(tmp_path))
    assert default_directory() == tmp_path
    monkeypatch.delenv("KGRUN_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert default_directory() == tmp_path / "xdg" / "kgrun"
