"""SIGTERM in the middle of writing: nothing temporary is left, and the process ends by that signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kgrun.graphs.termination import Terminated, unwound

START = "import os, signal, sys, time; from pathlib import Path; folder = Path(sys.argv[1])\n"
END = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)"
WRITERS = {
    "a report": f"""
from kgrun.cli.output import replacing
with replacing(folder / 'a.csv') as file:
    file.write(b'x'); {END}
""",
    "an array": f"""
from kgrun.graphs import data_save
with data_save._replacing(folder / 'a.npy') as file:
    file.write(b'x'); {END}
""",
    "a folder of arrays": f"""
import kgrun.graphs.data as data
from kgrun.cli.arrays import write_folder
def save_npy(path, array):
    path.write_bytes(b'x'); {END}
data.save_npy = save_npy
write_folder(folder, {{'y': None}})
""",
    "an imported graph": f"""
from kgrun.graphs.importers import publish
with publish._staging(folder) as staging:
    (staging / 'graph.json').write_bytes(b'x'); {END}
""",
    "one inside another": f"""
from kgrun.cli.output import replacing
with replacing(folder / 'a.csv') as file, replacing(folder / 'b.csv') as other:
    {END}
""",
}


@pytest.mark.parametrize("what", WRITERS)
def test_nothing_temporary_is_left(what: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", START + WRITERS[what], str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert list(tmp_path.iterdir()) == []


def test_a_handler_that_is_there_stays() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with unwound():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_the_handler_is_gone_afterwards() -> None:
    with unwound():
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with pytest.raises(ValueError, match="inside"), unwound():
        raise ValueError("inside")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not issubclass(Terminated, Exception)
