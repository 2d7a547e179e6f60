"""Every memory mode on random graphs, at several limits: equal bits, peaks that the device checks, no leaks."""

from __future__ import annotations

import pytest

from tests.runtime.memory_oracle import check_device, check_graph


@pytest.mark.parametrize("seed", range(24))
def test_S6_S37_S108_every_mode_gives_the_same_bits_and_keeps_every_limit(seed: int) -> None:
    check_graph(seed, nodes=5 + seed)


@pytest.mark.parametrize("seed", range(6))
def test_a_device_that_is_too_small_refuses_and_keeps_nothing(seed: int) -> None:
    check_device(seed)


@pytest.mark.parametrize("seed", [1020, 1045])
def test_S97_what_fits_without_offload_is_never_refused_for_the_sake_of_it(seed: int) -> None:
    check_graph(seed, nodes=1 + seed % 50)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(10))
def test_S6_S37_S108_six_hundred_graphs(part: int) -> None:
    for seed in range(1_000 + 60 * part, 1_060 + 60 * part):
        check_graph(seed, nodes=1 + seed % 50)
        check_device(seed, nodes=1 + seed % 50)
