"""Stated chances are corrected by what came true, in the situation where it was stated."""

from __future__ import annotations

from gate.decoders.trust import Trust

SITUATION, OTHER = (2, 1), (3, 1)


def test_chances_follow_what_came_true() -> None:
    trust = Trust()
    [(_, before)] = trust.correct([(7, 0.8)], SITUATION)
    for n in range(100):
        trust.observe([(7, 0.8)], SITUATION, 7 if n % 4 == 0 else 1)
    [(_, after)] = trust.correct([(7, 0.8)], SITUATION)
    assert before > 0.7
    assert 0.25 <= after < 0.35
    assert trust.correct([(7, 0.8)], OTHER)[0][1] > 0.7


def test_a_high_chance_behind_a_token_known_by_no_longer_key_is_not_believed_at_first() -> None:
    [(_, chance)] = Trust().correct([(7, 0.6)], (1, 1))
    assert chance < 0.4


def test_corrected_chances_are_in_order_and_below_one() -> None:
    trust = Trust()
    for _ in range(50):
        trust.observe([(1, 0.75), (2, 0.3)], SITUATION, 2)
    corrected = trust.correct([(1, 0.72), (2, 0.38)], SITUATION)
    assert [token for token, _ in corrected] == [2, 1]
    assert corrected == sorted(corrected, key=lambda guess: -guess[1])
    assert all(0.0 < chance < 1.0 for _, chance in corrected)
