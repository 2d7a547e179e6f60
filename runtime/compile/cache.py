"""The on-disk cache of compiled images: atomic, self-checking, bounded, and never a reason to fail."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FORMAT_VERSION = 1
DEFAULT_LIMIT_BYTES = 2 << 30

_MAGIC = b"KGCACHE\x01"
_HEADER = struct.Struct("<8sQ32s")  # magic, payload length, sha256 of the payload
_TEMPORARY_PREFIX = ".tmp-"
_ABANDONED_AFTER_S = 3600.0


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
            self._replace(path, payload)
        except OSError:
            return False
        self._evict(keep=path)
        return True

    def size_bytes(self) -> int:
        """Bytes of all entries on disk."""
        return sum(size for _, size, _ in self._entries())

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key[2:]}.bin"

    def _replace(self, path: Path, payload: bytes) -> None:
        handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_HEADER.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest()))
                file.write(payload)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _entries(self) -> list[tuple[float, int, Path]]:
        """(last use, size, path) of every entry; temporary files that nobody finished are removed on the
        way."""
        entries = []
        abandoned = time.time() - _ABANDONED_AFTER_S
        for path in self.directory.glob("??/*"):
            try:
                status = path.stat()
                if not path.name.startswith(_TEMPORARY_PREFIX):
                    entries.append((status.st_mtime, status.st_size, path))
                elif status.st_mtime < abandoned:
                    path.unlink()
            except OSError:
                continue  # another process was faster
        return entries

    def _evict(self, keep: Path) -> None:
        try:
            entries = self._entries()
        except OSError:
            return
        total = sum(size for _, size, _ in entries)
        if total <= self.limit_bytes:
            return
        target = self.limit_bytes * 9 // 10  # some slack, or every further put would scan and evict again
        for _, size, path in sorted(entries):
            if total <= target:
                return
            if path != keep:
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= size


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
