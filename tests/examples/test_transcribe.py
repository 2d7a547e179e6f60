"""The example that transcribes music: windows that fit together, notes from likelihoods, and a whole tune."""

from __future__ import annotations

import importlib.util
import sys
import wave
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("onnx")
PATH = Path(__file__).resolve().parents[2] / "examples" / "transcribe.py"


@pytest.fixture(scope="module")
def transcribe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("transcribe", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["transcribe"] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    return module


def test_the_tune_is_written_down_as_it_was_played(transcribe: ModuleType) -> None:
    found = transcribe.notes(*transcribe.likelihoods(transcribe.tune(), "cpu"))
    assert [note.name for note in found] == ["C4", "E4", "G4", "C5", "C3", "G3", "E4"]
    assert np.allclose([note.begin for note in found], [0.2, 0.6, 1.0, 1.4, 2.0, 2.0, 2.0], atol=0.03)
    assert all(0.3 <= note.end - note.begin <= 0.95 for note in found)


def test_windows_overlap_so_that_frames_fit_together(transcribe: ModuleType) -> None:
    hop, edge = transcribe.HOP, transcribe.EDGE
    sound = np.arange(150_000, dtype=np.float32)
    pieces = transcribe.windows(sound)[..., 0]
    # What is kept of each window: all but the frames at its edges, which begin where the last one's end.
    kept = np.concatenate([piece[edge * hop : len(piece) - edge * hop] for piece in pieces])
    assert np.array_equal(kept[: len(sound)], sound)


def test_a_note_ends_where_its_key_falls_silent_or_begins_again(transcribe: ModuleType) -> None:
    sounds, begins = np.zeros((100, 88), np.float32), np.zeros((100, 88), np.float32)
    sounds[10:40, 0] = 0.9
    sounds[20:22, 0] = 0.1  # a short gap
    sounds[60:65, 0] = 0.9  # too short for a note
    begins[[10, 60], 0] = 0.8
    sounds[5:80, 48] = 0.5
    begins[[5, 50], 48] = 0.6, 0.7
    found = [
        (note.name, round(note.begin * 22_050 / 256), round(note.end * 22_050 / 256))
        for note in transcribe.notes(sounds, begins)
    ]
    assert found == [("A0", 10, 40), ("A4", 5, 50), ("A4", 50, 80)]


def test_recordings_become_one_channel_at_the_network_s_rate(transcribe: ModuleType, tmp_path: Path) -> None:
    times = np.arange(44_100) / 44_100
    left, right = np.sin(2 * np.pi * 100 * times) * 0.5, np.zeros(44_100)
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((2, 2, 44_100, 0, "NONE", ""))
        file.writeframes((np.stack([left, right], 1) * 32_767).astype("<i2").tobytes())
    sound = transcribe.recording(tmp_path / "a.wav")
    assert len(sound) == transcribe.RATE
    assert np.allclose(sound, np.sin(2 * np.pi * 100 * np.arange(transcribe.RATE) / transcribe.RATE) * 0.25, atol=1e-3)
