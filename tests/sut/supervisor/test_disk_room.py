"""A disk that will be full before the run ends is a warning at once, and a burst of writes none."""

from pathlib import Path

import pytest

from harness.machine import free_bytes
from sut.supervisor.disk_room import DiskRoom

GB = 10**9


def said(free, remaining_s=28_800.0, seconds=3600):
    """When what was said of a disk with ``free(second)`` bytes, with a look a second."""
    room = DiskRoom(Path("/runs"), lambda folder: int(free(now)))
    found = []
    for now in range(seconds):
        if text := room.look(float(now), remaining_s(now) if callable(remaining_s) else remaining_s):
            found.append((now, text))
    return found


def test_a_disk_that_fills_up_is_said_once():
    ((second, text),) = said(lambda now: 90 * GB - now * GB / 60, seconds=5000)
    assert 1800 <= second < 1830  # an hour before
    assert text.startswith("the disk of /runs has 59,833 MB left and less each minute: ")
    assert "it will be full in 59m49s, before" in text


@pytest.mark.parametrize(
    ("free", "remaining_s"),
    [
        (lambda now: 9 * GB, 28_800.0),
        (lambda now: 90 * GB + now * GB, 28_800.0),
        (lambda now: 90 * GB - now * 10**6, 28_800.0),  # a day
        (lambda now: 65 * GB - now * GB / 60, 200.0),  # the run ends before
        (lambda now: 71 * GB - now * GB / 60, None),  # its end is not known, and the disk has ten minutes
        (lambda now: (20 if now < 100 else 18) * GB, 28_800.0),  # a moment
    ],
)
def test_other_disks_are_no_warning(free, remaining_s):
    assert said(free, remaining_s) == []


def test_a_disk_that_is_full_in_minutes_is_said_though_the_end_of_the_run_is_not_known():
    """Until as many queries have ended as run at once, which may take an hour, and in a silence."""
    ((second, text),) = said(lambda now: 60 * GB - now * GB / 60, remaining_s=lambda now: None)
    assert 3000 <= second < 3030
    assert "it will be full in 9m49s; free space there" in text


def test_it_is_said_once_though_the_time_left_is_not_known_meanwhile():
    """As after 30 s in which no answer of an Offline run has ended."""

    def remaining_s(now):
        return None if 600 <= now < 700 else 28_800.0

    assert len(said(lambda now: 60 * GB - now * GB / 60, remaining_s)) == 1


def test_it_is_said_again_after_there_was_room():
    def free(now):
        """It is emptied twice in the hour."""
        return 60 * GB - now % 1200 * GB / 30

    assert [second // 1200 for second, _ in said(free)] == [0, 1, 2]


def test_it_is_said_once_while_the_time_left_wavers():
    def remaining_s(now):
        """At times the run will end before the disk is full, at times after."""
        return 2000 - now + (50 if now // 30 % 2 else -50)

    assert len(said(lambda now: 100 * GB - now * GB / 20, remaining_s, seconds=1500)) == 1


def test_a_disk_that_stands_behind_the_first_look_is_no_warning_and_no_error():
    """For as long as the time that is looked at, in which nothing was seen."""
    free = iter(range(40 * GB, 0, -GB))
    room = DiskRoom(Path("/runs"), lambda folder: next(free))
    found = [bool(room.look(float(now), 28_800.0)) for now in (1, *range(400, 700, 10))]
    assert found == [False] * 30 + [True]


def test_the_room_is_that_of_this_machine(tmp_path):
    assert free_bytes(tmp_path) > 0
