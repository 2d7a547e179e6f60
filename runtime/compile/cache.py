"""The on-disk cache of compiled images: atomic, self-checking, bounded, and never a reason to fail."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kgrun.graphs.whole_files import replacing

FORMAT_VERSION = 1
DEFAULT_LIMIT_BYTES = 2 << 30

_MAGIC = b"KGCACHE\x01"
_HEADER = struct.Struct("<8sQ32s")  # magic, payload length, sha256 of the payload
_TEMPORARY_PREFIX = "."  # as `whole_files.beside` names them
_ABANDONED_AFTER_S = 3600.0
_FOLDERS = 256
_unwatched: dict[Path, int] = {}  # bytes that may be put before entries are counted again, by cache


def default_directory() -> Path:
    """Where kgrun keeps compiled images: $KGRUN_CACHE_DIR, or the platform's cache folder."""
    if chosen := os.environ.get("KGRUN_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kgrun"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kgrun"


def digest_key(parts: Iterable[str | bytes]) -> str:
    """The hex sha256 of `parts`, each length-prefixed so that no two lists of parts share a key."""
    digest = hashlib.sha256(f"kgrun-cache-{FORMAT_VERSION}".encode())
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


@dataclass(frozen=True)
class CompileCache:
    """Blobs by key under `directory`, at most `limit_bytes` of them, the least recently used going first.

    Safe for any number of processes: an entry is written to a temporary file and moved into place, and
    every read checks length and digest, so that a reader sees a whole entry or none. Where the directory
    cannot be written, `get` finds nothing and `put` does nothing.

    Entries lie in 256 folders by the first byte of their key. A digest's first byte is uniform, so `put` looks into
    its own folder only, and into all of them where that one suggests that half of the limit is used: the first time,
    and again when this process has filled a quarter of the room that there was.
    """

    directory: Path
    limit_bytes: int = DEFAULT_LIMIT_BYTES

    def get(self, key: str) -> bytes | None:
        """The payload stored under `key`, or None; a damaged entry is removed and counts as absent."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        payload = _checked_payload(data)
        with contextlib.suppress(OSError):
            if payload is None:
                path.unlink()
            else:
                os.utime(path)  # the file's time is its place in the eviction order
        return payload

    def put(self, key: str, payload: bytes) -> bool:
        """Store `payload` under `key`, replacing what was there; False where the disk refused it."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(_HEADER.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest()))
                file.write(payload)
        except OSError:
            return False
        with contextlib.suppress(OSError):
            self._evict(path, _HEADER.size + len(payload))
        return True

    def size_bytes(self) -> int:
        """Bytes of all entries on disk."""
        return sum(size for _, size, _ in _entries(self.directory.glob("??/*")))

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key[2:]}.bin"

    def _evict(self, keep: Path, size: int) -> None:
        if sum(each for _, each, _ in _entries(keep.parent.glob("*"))) * _FOLDERS <= self.limit_bytes // 2:
            return
        _unwatched[self.directory] = _unwatched.get(self.directory, 0) - size
        if _unwatched[self.directory] >= 0:
            return
        entries = _entries(self.directory.glob("??/*"))
        total = sum(each for _, each, _ in entries)
        if total > self.limit_bytes:
            target = self.limit_bytes * 9 // 10  # some slack, or every further put would scan and evict again
            total -= _remove_oldest(entries, total - target, keep)
        _unwatched[self.directory] = max(self.limit_bytes - total, 0) // 4  # other processes fill the cache too


def _remove_oldest(entries: list[tuple[float, int, Path]], excess: int, keep: Path) -> int:
    """Remove entries, the least recently used first, until `excess` bytes are gone; returns how many are."""
    gone = 0
    for _, size, path in sorted(entries):
        if gone >= excess:
            break
        if path != keep:
            with contextlib.suppress(OSError):
                path.unlink()
            gone += size
    return gone


def _entries(paths: Iterable[Path]) -> list[tuple[float, int, Path]]:
    """(last use, size, path) of every entry; temporary files that nobody finished are removed on the way."""
    entries = []
    abandoned = time.time() - _ABANDONED_AFTER_S
    for path in paths:
        try:
            status = path.stat()
            if not path.name.startswith(_TEMPORARY_PREFIX):
                entries.append((status.st_mtime, status.st_size, path))
            elif status.st_mtime < abandoned:
                path.unlink()
        except OSError:
            continue  # another process was faster
    return entries


def default_cache() -> CompileCache:
    """The cache in the default directory, read from the environment at each call."""
    return CompileCache(default_directory())


def _checked_payload(data: bytes) -> bytes | None:
    if len(data) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    intact = magic == _MAGIC and len(payload) == length and hashlib.sha256(payload).digest() == digest
    return payload if intact else None
