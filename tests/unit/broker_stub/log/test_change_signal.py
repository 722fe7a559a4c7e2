"""The signal that a log has changed."""

from __future__ import annotations

from tests.unit.broker_stub.replica.logs import NOW_MS, batch, open_log
from triokafka.broker_stub.log.change_signal import ChangeSignal


class Watcher:
    """Counts changes."""

    def __init__(self) -> None:
        self.changes = 0

    def changed(self) -> None:
        self.changes += 1


def test_a_watch_ends_with_its_first_change() -> None:
    signal, watcher, other = ChangeSignal(), Watcher(), Watcher()
    for one in (watcher, other, watcher):
        signal.watch(one)
    signal.unwatch(other)
    signal.unwatch(other)
    signal.notify()
    signal.notify()
    assert (watcher.changes, other.changes, len(signal)) == (1, 0, 0)


def test_every_change_of_a_log_notifies_its_watchers() -> None:
    log = open_log()
    changes = [
        lambda: log.append_as_leader(batch(b"a", b"b", b"c"), leader_epoch=1, now_ms=NOW_MS),
        lambda: log.append_as_leader(batch(b"d"), leader_epoch=2, now_ms=NOW_MS),
        lambda: log.advance_log_start_offset(1),
        lambda: log.truncate_to(3, now_ms=NOW_MS),
        lambda: log.truncate_to(3, now_ms=NOW_MS),  # takes away epochs without records
        lambda: log.truncate_fully_and_start_at(7, now_ms=NOW_MS),
        lambda: log.skip_to(9, now_ms=NOW_MS),
    ]
    for number, change in enumerate(changes):
        watcher = Watcher()
        log.changes.watch(watcher)
        change()
        assert watcher.changes == 1, number
