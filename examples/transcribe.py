"""Shows an ONNX model end to end: a recording becomes notes, with everything that goes before and after the network.

    python examples/transcribe.py [RECORDING.wav] [--device cpu|cuda]

Without a recording it plays a short tune on a simulated string and writes down what it hears. The network is Basic
Pitch (Spotify, Apache-2.0): two seconds of sound in, for each 88th of a second and each key of a piano how likely it
sounds and begins. Bittner et al., "A Lightweight Instrument-Agnostic Model for Polyphonic Note Transcription and
Multipitch Estimation", ICASSP 2022.
"""

from __future__ import annotations

import argparse
import wave
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.runtime.session import Session

MODEL = Path(__file__).parent / "data" / "basic_pitch.onnx"
INPUT, NOTES, ONSETS = "serving_default_input_2:0", "StatefulPartitionedCall:1", "StatefulPartitionedCall:2"

RATE = 22_050  # samples a second
HOP = 256  # samples a frame
WINDOW = 2 * RATE - HOP  # samples the network takes: 172 frames
EDGE = 15  # frames at either end of a window that the next one knows better
LOWEST_KEY = 21  # MIDI number of a piano's lowest key
KEY_NAMES = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")

BEGINS, SOUNDS = 0.5, 0.3  # likelihoods from which a note begins, and goes on
SHORTEST, PAUSE = 11, 11  # frames: shorter notes are noise, longer gaps end a note

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Note:
    """A note: its MIDI number, begin and end in seconds."""

    key: int
    begin: float
    end: float

    @property
    def name(self) -> str:
        """For example `A4`."""
        return f"{KEY_NAMES[self.key % 12]}{self.key // 12 - 1}"


def tune() -> Array:
    """An arpeggio and a chord on plucked strings (Karplus and Strong, 1983), 3.5 seconds."""
    sound = np.zeros(int(3.5 * RATE), np.float32)
    score = [(60, 0.2), (64, 0.6), (67, 1.0), (72, 1.4), (48, 2.0), (55, 2.0), (64, 2.0)]
    for key, begin in score:
        string = pluck(440 * 2 ** ((key - 69) / 12), 0.9 if begin == 2.0 else 0.38, key)
        start = int(begin * RATE)
        sound[start : start + len(string)] += string[: len(sound) - start]
    return sound * np.float32(0.3)


def pluck(frequency: float, seconds: float, seed: int) -> Array:
    """A string: noise that goes round a delay line and is smoothed a little each time."""
    period = int(RATE / frequency - 0.5)
    line = np.random.default_rng(seed).uniform(-1, 1, period)
    rounds = int(seconds * RATE) // period + 1
    sound = np.empty((rounds, period), np.float32)
    for turn in range(rounds):
        sound[turn] = line
        line = 0.996 * 0.5 * (line + np.roll(line, 1))
    return sound.reshape(-1)[: int(seconds * RATE)]


def recording(path: Path) -> Array:
    """A 16-bit WAV file as one channel at RATE, between -1 and 1."""
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2:
            raise SystemExit(f"{path}: only 16-bit WAV files are read")
        rate, channels = file.getframerate(), file.getnchannels()
        data = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    sound = data.reshape(-1, channels).mean(1) / 32_768
    places = np.arange(int(len(sound) * RATE / rate)) * (rate / RATE)
    return np.interp(places, np.arange(len(sound)), sound).astype(np.float32)


def windows(sound: Array) -> Array:
    """Overlapping pieces of WINDOW samples; the first begins with silence, so that no frame stands at an edge."""
    step = WINDOW - 2 * EDGE * HOP
    padded = np.concatenate([np.zeros(EDGE * HOP, np.float32), sound])
    count = max(1, -(-(len(padded) - EDGE * HOP) // step))
    padded = np.pad(padded, (0, max(0, (count - 1) * step + WINDOW - len(padded))))
    return np.stack([padded[at * step : at * step + WINDOW] for at in range(count)])[..., None]


def likelihoods(sound: Array, device: str) -> tuple[Array, Array]:
    """For each frame and each of 88 keys: how likely it sounds, how likely it begins."""
    pieces = windows(sound)
    found: dict[str, list[Array]] = {NOTES: [], ONSETS: []}
    with Session(onnx_graph(MODEL), device=device, values={INPUT: pieces[:1]}) as session:
        for piece in pieces:
            outputs = session.run({INPUT: piece[None]}, iterations=1, per_step=False).outputs
            for name, rows in found.items():
                rows.append(outputs[name][0, EDGE:-EDGE])
    frames = -(-len(sound) // HOP)
    return np.concatenate(found[NOTES])[:frames], np.concatenate(found[ONSETS])[:frames]


def notes(sounds: Array, begins: Array) -> list[Note]:
    """Notes by when they begin: each from a peak of its key's onsets to where the key falls silent."""
    padded = np.pad(begins, ((1, 1), (0, 0)))
    peaks = (begins >= BEGINS) & (begins > padded[:-2]) & (begins >= padded[2:])
    seconds, found = HOP / RATE, []
    for key in range(begins.shape[1]):
        starts = np.flatnonzero(peaks[:, key])
        for start, limit in pairwise([*starts, len(sounds)]):
            loud = np.flatnonzero(sounds[start:limit, key] >= SOUNDS)
            gaps = np.flatnonzero(np.diff(loud) > PAUSE)
            loud = loud[: gaps[0] + 1] if len(gaps) else loud
            if len(loud) < SHORTEST:
                continue
            end = int(start + loud[-1] + 1)
            found.append(Note(key + LOWEST_KEY, start * seconds, end * seconds))
    return sorted(found, key=lambda note: (round(note.begin, 1), note.key))


def main() -> None:
    """Print the notes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?", type=Path, help="16-bit WAV file")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    sound = tune() if options.recording is None else recording(options.recording)
    for note in notes(*likelihoods(sound, options.device)):
        print(f"{note.begin:6.2f} s  {note.name:<4} {'▇' * round((note.end - note.begin) * 20)}")


if __name__ == "__main__":
    main()
