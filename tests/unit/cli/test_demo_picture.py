"""The demo's pictures have a lane for each partition, and texts that neither overlap nor are cut."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from triokafka.cli.demo.group import GroupLog
from triokafka.cli.demo.picture import active_times, draw_lanes, draw_outages, longest_pause_of
from triokafka.cli.demo.report import Delivered, Findings, Outage

pytest.importorskip("matplotlib")

_SHARES = [
    (3.0, {"member-1": [0, 1], "member-2": [2, 3], "member-3": [4, 5]}),
    (13.0, {"member-1": [0, 1], "member-2": [2, 3], "member-3": [4], "member-4": [5]}),
    (28.0, {"member-1": [0, 1], "member-3": [2, 3], "member-4": [4, 5]}),
]


def findings_of_a_run() -> Findings:
    """A run of forty seconds in which a member joins and is killed, and three nodes are killed."""
    log = GroupLog(bytearray(1), 0.0)
    for at, shares in _SHARES:
        for member, partitions in shares.items():
            log.revoked(at - 0.4, member, list(range(6)))
            log.assigned(at, member, int(at), partitions)
        if at == 13.0:
            log.killed(21.5, "member-2")
    found = Findings(sent=336_776, received=336_776, ownerships=log.ownerships)
    found.end_offsets = dict.fromkeys(range(6), 56_129)
    found.faults = [(10.0, "member-4 starts"), (21.5, "member-2 is killed")]
    for owned in log.ownerships:
        until = 40.0 if owned.until is None else owned.until
        steps = range(int((until - owned.since) * 4))
        found.delivered += [Delivered(owned.since + step / 4, owned.member, owned.partition, 700) for step in steps]
    found.delivered.sort(key=lambda batch: batch.at)
    found.produced = {number: [(step / 10, step * 100) for step in range(100)] for number in range(6)}
    found.produced[4] = [(at, count) for at, count in found.produced[4] if not 3.3 < at < 6.6]
    found.produce_outages = [Outage(3.2, "node 2, which leads partition 0, is killed", 9.0)]
    found.consume_outages = [
        Outage(24.0, "node 2, the group's coordinator, is killed", 30.0),
        Outage(33.5, "node 1, the active controller, is killed", 39.1),
    ]
    return found


def texts_of(figure: Any) -> dict[str, Any]:
    """The boxes of all texts, by content and place."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    return {f"{number} {text.get_text()}": text.get_window_extent(renderer) for number, text in enumerate(shown)}


@pytest.mark.parametrize("draw", [draw_lanes, draw_outages])
def test_texts_neither_overlap_nor_are_cut(draw: Any) -> None:
    figure = draw(findings_of_a_run())
    figure.set_dpi(160)  # as the demo saves it: the widths of letters are rounded to pixels
    boxes = texts_of(figure)
    assert len(boxes) > 15
    for text, box in boxes.items():
        assert box.x0 >= 0 and box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
    for (text, box), (other, second) in combinations(boxes.items(), 2):
        assert not box.padded(-1).overlaps(second.padded(-1)), f"{text!r} and {other!r} overlap"


def test_a_partition_has_an_owner_from_its_assignment_to_its_revocation_or_the_kill() -> None:
    owners = [owned for owned in findings_of_a_run().ownerships if owned.partition == 2]
    assert [(owned.member, owned.since, owned.until) for owned in owners] == [
        ("member-2", 3.0, 12.6),
        ("member-2", 13.0, 21.5),
        ("member-3", 28.0, None),
    ]


def test_batches_that_follow_each_other_are_one_active_time() -> None:
    assert active_times([1.0, 1.5, 2.0, 9.0]) == [(1.0, 2.2), (9.0, 9.2)]


def test_the_longest_pause_of_an_outage_is_that_of_the_partition_that_lost_its_leader() -> None:
    found = findings_of_a_run()
    pause = longest_pause_of(found.produce_outages[0], found.produced)
    assert pause is not None
    assert (pause.partition, round(pause.seconds, 1)) == (4, 3.3)
