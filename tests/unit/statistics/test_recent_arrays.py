"""Arrays that are kept: made once while there is room, and nobody's to change."""

import numpy as np
import pytest

from harness.statistics.bootstrap import RecentArrays


def made_again(recent, key):
    """Whether the array of a key has to be made."""
    calls = []
    recent.get(key, lambda: calls.append(key) or np.ones(4))
    return bool(calls)


def test_an_array_is_made_once():
    recent = RecentArrays(most_bytes=1000)
    assert made_again(recent, "a")
    assert not made_again(recent, "a")


def test_what_was_asked_for_longest_ago_makes_room():
    recent = RecentArrays(most_bytes=64)  # Two arrays of 32 bytes.
    for key in ("a", "b", "a", "c"):
        recent.get(key, lambda: np.ones(4))
    assert [made_again(recent, key) for key in ("a", "c")] == [False, False]
    assert made_again(recent, "b")


def test_an_array_larger_than_the_room_is_returned_and_not_kept():
    recent = RecentArrays(most_bytes=8)
    assert recent.get("a", lambda: np.arange(4.0)).tolist() == [0, 1, 2, 3]
    assert made_again(recent, "a")


def test_what_is_kept_cannot_be_changed():
    array = RecentArrays(most_bytes=1000).get("a", lambda: np.ones(4))
    with pytest.raises(ValueError, match="read-only"):
        array += 1
