"""Files that appear whole or not at all: written beside their place, then moved to it."""

from __future__ import annotations

import os
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
        import shutil
        import tempfile

        with tempfile.TemporaryFile() as whole:  # numpy and zipfile want to know where they are
            yield whole
            whole.seek(0)
            with path.open("wb") as target:
                shutil.copyfileobj(whole, target)
        return
    final = Path(os.path.realpath(path)) if path.is_symlink() else path  # a link stays one
    staging = beside(final)
    with unwound():
        file = staging.open("xb")  # with the permissions that files of this process have
        try:
            with file:
                yield file
            os.replace(staging, final)
        except BaseException:
            staging.unlink(missing_ok=True)
            raise


def beside(path: Path) -> Path:
    """A path that nobody has, in the folder of `path`, hidden, and named after it."""
    return path.parent / f".{path.name[:100]}.{os.urandom(6).hex()}.tmp"
