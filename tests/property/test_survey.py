"""The leader's survey of the records in a batch: both implementations agree with each other and with the decoder."""

from __future__ import annotations

import random
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_records import SEEDS, mutated, records
from tests.unit.records.stacks import STACKS, Stack
from triokafka.errors import CorruptRecordError
from triokafka.records import encode_batch, iter_batches
from triokafka.records.batch import HEADER_SIZE


def survey(stack: Stack, data: bytes) -> Any:
    """Survey the first batch; return the position of the error if it is broken."""
    info = next(iter_batches(data))
    try:
        return stack.kernel.survey_records(
            memoryview(data), HEADER_SIZE, info.end, info.record_count, info.base_timestamp, "t", 3
        )
    except CorruptRecordError as error:
        assert "t-3" in str(error)
        return re.findall(r"record \d+|bytes follow", str(error))


@settings(deadline=None)
@given(rows=records)
def test_survey_agrees_with_the_decoded_records(rows: list[tuple]) -> None:
    data = bytes(encode_batch(rows))
    times = [record.timestamp for record in STACKS[0].records.decode_records(data)]
    expected = (
        min((time for time in times if time != -1), default=-1),
        max([-1, *times]),
        sum(row[1] is None for row in rows),
    )
    # For timestamps before 1970, -1 stands for no timestamp.
    for stack in STACKS:
        assert survey(stack, data) == expected


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_both_implementations_agree_on_broken_records(seed: int) -> None:
    source = random.Random(seed)
    whole = bytes(SEEDS[0])
    data = whole[:HEADER_SIZE] + mutated(source, whole[HEADER_SIZE:])
    data = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
    first, *others = [survey(stack, data) for stack in STACKS]
    for other in others:
        assert other == first
