"""Files that appear whole or not at all: written beside their place, then moved to it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kgrun.graphs.termination import unwound


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` at the end; on failure, SIGTERM included, nothing is left of it.

    What cannot be replaced, a device or a pipe, gets the bytes at the end. OSError where it cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with tempfile.TemporaryFile() as whole:  # numpy and zipfile want to know where they are
            yield whole
            whole.seek(0)
            with path.open("wb") as target:
                shutil.copyfileobj(whole, target)
        return
    final = Path(os.path.realpath(path)) if path.is_symlink() else path  # a link stays one
    with unwound():
        handle, name = tempfile.mkstemp(prefix=f".{final.name[:100]}.", suffix=".tmp", dir=final.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            os.chmod(name, 0o666 & ~umask())
            os.replace(name, final)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def umask() -> int:
    """The permissions that this process withholds from new files; `tempfile` withholds all of others instead."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
