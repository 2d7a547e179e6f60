"""Words of the command line as values."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.cli.values import check_number, parse_device, parse_dims, parse_size
from kgrun.graphs.errors import UsageError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4GiB", 4 << 30),
        ("4GB", 4_000_000_000),
        ("4 gib", 4 << 30),
        ("1.5MiB", 1_572_864),
        ("0.5 kB", 500),
        ("2TiB", 2 << 40),
        ("17b", 17),
    ],
)
def test_sizes_in_binary_and_decimal_units(text: str, nbytes: int) -> None:
    assert parse_size(text, "--memory-limit") == nbytes


@pytest.mark.parametrize(
    "text", ["", "4G", "GiB", "-1", "1e9", "nan", "0.3B", "4GiBs", "9" * 21, "9999999PiB", "４GiB"]
)
def test_what_is_no_size_is_usage(text: str) -> None:
    with pytest.raises(UsageError, match="--memory-limit: "):
        parse_size(text, "--memory-limit")


def test_dyn_03_dimensions_are_integers_from_zero_on() -> None:
    assert parse_dims(["N=0", "M=64", "N=0"]) == {"N": 0, "M": 64}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("N=-1", "--dim N: -1 is negative"),
        ("N=1.5", "--dim N: '1.5' is no integer"),
        ("N=", "--dim N: '' is no integer"),
        ("N=1_000", "--dim N: '1_000' is no integer"),
        ("N=" + "9" * 5000, "is no integer"),
        ("N=9223372036854775808", "is no integer"),
        ("N", "--dim: 'N' is not NAME=INTEGER"),
        ("=4", "--dim: '=4' is not NAME=INTEGER"),
    ],
)
def test_dyn_03_other_dimensions_are_usage(word: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_dims([word])
    assert message in caught.value.message
    assert caught.value.exit == 2


def test_a_dimension_given_twice_must_agree() -> None:
    with pytest.raises(UsageError, match="--dim N is given twice: 1 and 2"):
        parse_dims(["N=1", "N=2"])


@pytest.mark.parametrize(
    ("text", "device"),
    [("auto", "auto"), ("cpu", "cpu"), ("cuda", "cuda"), ("cuda:1", "cuda:1"), ("1", "cuda:1"), ("cuda:007", "cuda:7")],
)
def test_devices(text: str, device: str) -> None:
    assert parse_device(text) == device


@pytest.mark.parametrize("text", ["gpu", "cuda:", "cuda:-1", "CPU", "", "cuda:1x", "cpu:0"])
def test_what_is_no_device_is_usage(text: str) -> None:
    with pytest.raises(UsageError, match="is no device"):
        parse_device(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_numbers_are_finite_and_not_negative(value: float) -> None:
    with pytest.raises(UsageError, match="--rtol"):
        check_number(value, "--rtol")


def test_zero_is_a_number_but_no_positive_one() -> None:
    assert check_number(0.0, "--rtol") == 0
    assert check_number(None, "--timeout", positive=True) is None
    with pytest.raises(UsageError, match=r"--timeout: 0\.0 is not a positive number"):
        check_number(0.0, "--timeout", positive=True)


def test_environment_twin_of_an_option_is_read(kgrun: Any, graph_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = graph_file(nodes=[], outputs=[])
    assert kgrun("validate", path).code == 3
    monkeypatch.setenv("KGRUN_ALLOW_EMPTY", "1")
    assert kgrun("validate", path).code == 0


def test_bad_environment_twin_is_usage(kgrun: Any, graph_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGRUN_ITERATIONS", "many")
    result = kgrun("execute", graph_file())
    assert result.code == 2
    assert "KGRUN_ITERATIONS" in result.err


def test_dyn_01_unknown_dimension_is_usage_with_a_suggestion(kgrun: Any, graph_file: Any) -> None:
    tensors = {"x": {"role": "input", "dtype": "float32", "shape": ["batch"]}}
    path = graph_file(dims={"batch": {"default": 8}}, tensors=tensors)
    result = kgrun("validate", path, "--dim", "bach=4")
    assert result.code == 2
    assert "did you mean 'batch'?" in result.err


def test_dyn_01_unbound_dimension_is_usage(kgrun: Any, graph_file: Any) -> None:
    result = kgrun("validate", graph_file(dims={"n": {}}))
    assert result.code == 2
    assert "--dim n=" in result.err
