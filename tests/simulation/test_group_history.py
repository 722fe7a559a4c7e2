"""The checker of the group tests: it detects each kind of violation, and accepts valid histories."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.group_kills.history import Attempt, History, Outcome


class Story:
    """A scripted history, in which each step takes a second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.history = History(self._clock)

    def _clock(self) -> float:
        self.now += 1
        return self.now

    def commit(self, offset: int, outcome: Outcome | None, *, member: str = "a", epoch: int = 1) -> Attempt:
        attempt = self.history.commit(member, "g", epoch, {0: offset})
        if outcome is not None:
            attempt.done(outcome)
        return attempt

    def read(self, offset: int, attempt: Attempt | None = None) -> None:
        self.history.read("g", 0, offset, attempt.tag if attempt is not None else "", since=self._clock())


def lost(story: Story) -> None:
    story.commit(5, Outcome.ACKNOWLEDGED)
    story.read(-1)


def overwritten_by_an_older_one(story: Story) -> None:
    older = story.commit(4, Outcome.ACKNOWLEDGED)
    story.commit(5, Outcome.ACKNOWLEDGED)
    story.read(4, older)


def carried_out_though_refused(story: Story) -> None:
    story.read(5, story.commit(5, Outcome.REFUSED))


def invented(story: Story) -> None:
    story.read(6, story.commit(5, Outcome.ACKNOWLEDGED))


def moved_back(story: Story) -> None:
    newer = story.commit(9, None)
    story.read(9, newer)
    story.read(4, story.commit(4, Outcome.ACKNOWLEDGED))


def two_owners(story: Story) -> None:
    story.history.granted("a", "g", 3, [0])
    story.history.gave_up("a", "g")
    story.history.granted("b", "g", 3, [0])


def committed_after_another_had_it(story: Story) -> None:
    story.history.granted("a", "g", 1, [0])
    story.history.granted("b", "g", 2, [0])
    story.commit(5, Outcome.ACKNOWLEDGED, member="a", epoch=1)


def given_away_while_held(story: Story) -> None:
    story.history.granted("a", "g", 1, [0])
    story.history.heard_of("a", "g", sent_at=story.now, patience=10)
    story.history.granted("b", "g", 2, [0])


def given_away_while_held_again(story: Story) -> None:
    """The response that returned the partition arrived before the member had revoked it."""
    story.history.granted("a", "g", 1, [0])
    assigned_at = story.history.clock()
    story.history.gave_up("a", "g")
    story.history.granted("a", "g", 2, [0], assigned_at=assigned_at)
    story.history.heard_of("a", "g", sent_at=story.now, patience=10)
    story.history.granted("b", "g", 3, [0])


@pytest.mark.parametrize(
    ("build", "verdict"),
    [
        (lost, "lost is the acknowledged 5"),
        (overwritten_by_an_older_one, "lost is the acknowledged 5"),
        (carried_out_though_refused, "which was refused"),
        (invented, "nobody had committed"),
        (moved_back, "the position was 9"),
        (two_owners, "belongs to a and to b"),
        (committed_after_another_had_it, "b has it since"),
        (given_away_while_held, "while a held it"),
        (given_away_while_held_again, "while a held it"),
    ],
)
def test_history_checker_detects_every_violation(build: Callable[[Story], None], verdict: str) -> None:
    story = Story()
    build(story)
    (found,) = story.history.violations()
    assert verdict in found and found.startswith("group g, partition 0: ")


def a_lost_answer(story: Story) -> None:
    story.commit(4, Outcome.ACKNOWLEDGED)
    story.read(5, story.commit(5, Outcome.UNKNOWN))


def a_lost_request(story: Story) -> None:
    acknowledged = story.commit(4, Outcome.ACKNOWLEDGED)
    story.commit(5, Outcome.UNKNOWN)
    story.read(4, acknowledged)


def commits_at_the_same_time(story: Story) -> None:
    first = story.commit(4, None, member="a")
    second = story.commit(5, None, member="b")
    second.done(Outcome.ACKNOWLEDGED)
    first.done(Outcome.ACKNOWLEDGED)
    story.read(4, first)


def an_expired_session(story: Story) -> None:
    story.history.granted("a", "g", 1, [0])
    story.history.heard_of("a", "g", sent_at=story.now, patience=10)
    story.now += 10
    story.history.granted("b", "g", 2, [0])


def a_zombie_known_to_a_loading_coordinator(story: Story) -> None:
    story.history.granted("a", "g", 1, [0])
    story.history.heard_of("a", "g", sent_at=story.now, patience=10)
    story.now += 20
    story.history.heard_of("a", "g", sent_at=story.now, patience=10)
    story.history.granted("b", "g", 2, [0])


def records_lost_with_the_disk(story: Story) -> None:
    story.history.granted("a", "g", 3, [0])
    story.commit(5, Outcome.ACKNOWLEDGED)
    story.history.forgets()
    story.read(-1)
    story.history.granted("b", "g", 3, [0])


def taken_over_after_the_coordinator_forgot_it(story: Story) -> None:
    assigned_at = story.history.clock()
    story.history.forgets()
    story.history.granted("b", "g", 1, [0])
    story.history.granted("a", "g", 3, [0], assigned_at=assigned_at)
    story.commit(5, Outcome.ACKNOWLEDGED, member="b", epoch=1)


@pytest.mark.parametrize(
    "build",
    [
        a_lost_answer,
        a_lost_request,
        commits_at_the_same_time,
        an_expired_session,
        a_zombie_known_to_a_loading_coordinator,
        records_lost_with_the_disk,
        taken_over_after_the_coordinator_forgot_it,
    ],
)
def test_history_checker_accepts_every_valid_history(build: Callable[[Story], None]) -> None:
    story = Story()
    build(story)
    assert story.history.violations() == []


def test_a_reset_of_committed_offsets_is_accepted() -> None:
    story = Story()
    story.history.moves_freely("g")
    moved_back(story)
    assert story.history.violations() == []


def test_unhandled_records_are_named() -> None:
    history = History(lambda: 0.0)
    history.handled("g", 0, [0, 2])
    assert history.unhandled("g", {0: 3, 1: 0}) == {0: [1]}
