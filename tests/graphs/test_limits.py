"""Launch limits: boundary values pass, one past them is named with its axis and limit."""

from __future__ import annotations

import pytest

from kgrun.graphs.errors import UsageError
from kgrun.graphs.limits import LIMITS, check_launch, limits_of

H = limits_of("sm_90")


def messages(*args: object, **kwargs: object) -> list[str]:
    return [text for text, _ in check_launch(H, *args, **kwargs)]  # type: ignore[arg-type]


@pytest.mark.parametrize("grid", [(2**31 - 1, 1, 1), (1, 65_535, 1), (1, 1, 65_535)])
def test_largest_grids_pass(grid: tuple[int, ...]) -> None:
    assert check_launch(H, grid, (1, 1, 1)) == []


@pytest.mark.parametrize(
    ("grid", "axis", "text"),
    [
        ((2**31, 1, 1), 0, "grid[0]=2147483648 > 2147483647 (max_grid_dim_x)"),
        ((1, 65_536, 1), 1, "grid[1]=65536 > 65535 (max_grid_dim_y)"),
        ((1, 1, 65_536), 2, "grid[2]=65536 > 65535 (max_grid_dim_z)"),
        ((1, 0), 1, "grid[1]=0 < 1"),
    ],
)
def test_a_grid_too_large_names_axis_and_limit(grid: tuple[int, ...], axis: int, text: str) -> None:
    assert check_launch(H, grid, (1, 1, 1)) == [(text, ("grid", axis))]


def test_blocks_are_limited_by_axis_and_by_product() -> None:
    assert messages((1,), (1024, 1, 1)) == []
    assert "block[0]=1025 > 1024 (max_block_dim_x)" in messages((1,), (1025, 1, 1))
    assert messages((1,), (32, 33, 1)) == ["block 32×33×1=1056 threads > 1024 (max_threads_per_block)"]
    assert messages((1,), (1, 1, 65)) == ["block[2]=65 > 64 (max_block_dim_z)"]


def test_static_and_dynamic_shared_memory_count_together() -> None:
    most = 227 * 1024
    assert messages((1,), (32,), 0, most) == []
    assert messages((1,), (32,), 1024, most - 1024) == []
    assert messages((1,), (32,), 1, most) == [
        "shared=232448 + 1 static = 232449 > 232448 (max_shared_memory_per_block_optin of sm_90)"
    ]
    assert messages((1,), (32,), 0, -1) == ["shared=-1 < 0"]


def test_registers_are_counted_in_units_of_a_warp() -> None:
    assert messages((1,), (1024,), registers=64) == []
    assert messages((1,), (1024,), registers=65) == [
        "1024 threads × 65 registers = 73728 > 65536 (max_registers_per_block)"
    ]
    assert messages((1,), (32,), registers=256) == ["registers=256 > 255 (max_registers_per_thread)"]


def test_clusters() -> None:
    assert messages((8, 2, 1), (32,), cluster=(4, 2, 1)) == []
    assert messages((9, 2, 1), (32,), cluster=(4, 2, 1)) == ["grid[0]=9 is no multiple of cluster[0]=4"]
    assert messages((16, 1, 1), (32,), cluster=(16, 1, 1)) == ["cluster 16×1×1=16 blocks > 8 (max_cluster_size)"]
    found = check_launch(LIMITS["sm_80"], (4,), (32,), cluster=(2, 1, 1))
    assert found == [("sm_80 has no thread block clusters", ("cluster",))]


def test_architectures_are_found_by_any_spelling() -> None:
    assert limits_of("90") == limits_of("sm_90a") == limits_of("compute_90")
    assert limits_of("sm_122").shared_optin == limits_of("sm_121").shared_optin
    with pytest.raises(UsageError, match="unknown architecture 'sm_52'"):
        limits_of("sm_52")
