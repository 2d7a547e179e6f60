"""Names of checks and schedules: what each device offers, what is refused."""

from __future__ import annotations

import pytest

from kgrun.graphs.errors import UsageError
from kgrun.runtime.checks.names import CHECKS, check_schedule, check_settings, split_checks


def test_all_is_what_the_device_offers() -> None:
    assert check_settings(["all"], "forward", "cpu").names == set(CHECKS)
    assert check_settings(["all"], "forward", "cuda").names == {"init", "nan", "readonly", "redzone"}
    assert check_settings(["race, nan", "bounds"], "reverse", "cpu").names == {"race", "nan", "bounds"}
    assert not check_settings([], "forward", "cuda").names


def test_an_unknown_check_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown check 'boudns'") as caught:
        split_checks("race,boudns")
    assert (caught.value.code, caught.value.help) == ("KG214", "did you mean 'bounds'?")
    with pytest.raises(UsageError, match="no check is named"):
        split_checks(" , ")


def test_what_a_gpu_cannot_follow_is_refused_there() -> None:
    with pytest.raises(UsageError, match="check 'bounds' follows every access") as caught:
        check_settings(["bounds", "nan"], "forward", "cuda")
    assert caught.value.exit == 2
    assert "--device cpu" in str(caught.value.help)
    with pytest.raises(UsageError, match="its own schedule"):
        check_settings([], "reverse", "cuda")


@pytest.mark.parametrize("text", ["backward", "random", "random:", "random:x", "random:-1", "random:٣", "forward:1"])
def test_a_schedule_that_is_none(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_schedule(text)
    assert caught.value.code == "KG211"


def test_schedules() -> None:
    assert [check_schedule(text) for text in ("forward", "reverse", "random:7")] == ["forward", "reverse", "random:7"]
