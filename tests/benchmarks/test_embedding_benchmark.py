"""The embedding benchmark at a size for every day: all lookups right, and wrong ones noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["--gib", "0.004", "--steps", "40", "--batch", "64", "--width", "16", "--layers", "1"]


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_S155_every_lookup_of_the_benchmark_is_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import embedding

    assert embedding.main([*SMALL, "--time"]) == 0
    text = capsys.readouterr().out
    assert "67,108 rows of 64 bytes, 1,342 cached; 40 steps of 64 ids" in text
    assert "wrong: 0 of 40 steps" in text
    assert "step ÷ bound" in text
    monkeypatch.setattr(embedding, "first_values", lambda rows, width: np.zeros((len(rows), width), np.float32))
    monkeypatch.setattr(embedding, "make_table", lambda path, *size: np.save(path, np.ones(size[:2], np.float32)))
    assert embedding.main(SMALL) == 1


def test_ids_follow_zipfs_law_over_all_rows() -> None:
    import embedding

    ids = embedding.zipf_ids(np.random.default_rng(0), 1_000, 1.05, (200_000,))
    counts = np.sort(np.bincount(ids, minlength=1_000))[::-1]
    assert ids.min() >= 0
    assert ids.max() < 1_000
    assert np.count_nonzero(counts) > 950
    assert 1.6 < counts[0] / counts[1] < 2.6
    assert 6 < counts[0] / counts[9] < 18
