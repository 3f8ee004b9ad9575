from __future__ import annotations

from tokenwire_server.engine.pace import Pace


def learned(rate: float) -> Pace:
    pace = Pace()
    for _ in range(50):
        pace.saw(rate)
    return pace


def test_before_anything_is_known_each_token_travels_alone() -> None:
    assert Pace().interval(1000) == 1


def test_a_slow_engine_never_holds_a_token_back() -> None:
    assert learned(5).interval(1000) == 1


def test_a_fast_one_packs_more_the_more_streams_there_are() -> None:
    pace = learned(150)
    assert [pace.interval(n) for n in (0, 60, 70, 140, 280, 10_000)] == [1, 1, 2, 4, 4, 4]


def test_a_stream_that_was_too_short_to_tell_teaches_nothing() -> None:
    pace = learned(150)
    pace.saw(0.0)
    assert pace.interval(70) == 2
