from __future__ import annotations

from tokenwire_server.engine.pace import Pace


def run(pace: Pace, tokens_per_second: float, seconds: float, start: float) -> float:
    """Steps of 10 ms at a rate; returns the time at the end."""
    now = start
    for _ in range(int(seconds * 100)):
        now += 0.01
        pace.count(int(tokens_per_second / 100), now)
    return now


def test_before_anything_is_known_each_token_travels_alone() -> None:
    assert Pace().interval == 1


def test_a_slow_engine_never_holds_a_token_back() -> None:
    pace = Pace()
    run(pace, 4000, 5, pace._since)
    assert pace.interval == 1


def test_a_fast_one_packs_more_the_more_it_makes() -> None:
    for rate, interval in ((9_000, 2), (15_000, 4), (25_000, 8), (90_000, 8)):
        pace = Pace()
        run(pace, rate, 0.5, pace._since)
        assert pace.interval == interval


def test_it_goes_up_at_once_and_down_when_it_has_been_calm() -> None:
    pace = Pace()
    now = run(pace, 30_000, 0.3, pace._since)
    assert pace.interval == 8
    now = run(pace, 500, 1.0, now)
    assert pace.interval == 8
    run(pace, 500, 1.5, now)
    assert pace.interval == 1


def test_a_change_is_told_once() -> None:
    pace = Pace()
    start = pace._since
    told = [pace.count(300, start + 0.01 * step) for step in range(1, 100)]
    assert sum(told) == 1
