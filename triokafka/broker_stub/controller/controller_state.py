"""The controller's state: the committed and the staged images, and the decisions about changes. No task, disk or clock.

An operation reads ``image`` and yields an outcome. `ControllerState.stage` replays its records into the next image, on
which the next operation builds. Only `ControllerState.commit` makes a staged image the committed one. After a failure,
`ControllerState.roll_back` restores the committed image.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Generator, Sequence

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.broker_control import BrokerControl
from triokafka.broker_stub.controller.configuration_control import ConfigurationControl
from triokafka.broker_stub.controller.policies import Policies
from triokafka.broker_stub.controller.token_control import TokenControl
from triokafka.broker_stub.controller.topic_control import TopicControl
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage
from triokafka.errors import IllegalStateError, NotControllerError
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.message import Struct


class StagedChange(NamedTuple):
    """Records that are replayed but not committed: their first offset, and the resulting image and delta."""

    base_offset: int
    records: Sequence[Struct]
    delta: MetadataDelta
    image: MetadataImage


class ControllerState:
    """The images of the controller, and the controls that decide about changes.

    Args:
        pick: chooses a number below its argument, at which placement starts.
        new_id: creates topic ids.
    """

    def __init__(self, config: BrokerConfig, *, pick: Callable[[int], int], new_id: Callable[[], uuid.UUID]) -> None:
        self.committed: MetadataImage = EMPTY_IMAGE
        self._staged: deque[StagedChange] = deque()
        self.epoch = 0
        policies = Policies(config)
        self.configuration = ConfigurationControl(config, policies)
        self.topics = TopicControl(config, self.configuration, policies, pick=pick, new_id=new_id)
        self.tokens = TokenControl(config)
        self.brokers = BrokerControl(config.broker_session_timeout_ms / 1000, self.configuration.effective.topic_config)

    @property
    def image(self) -> MetadataImage:
        """The newest image, staged changes included. The next operation builds on it."""
        return self._staged[-1].image if self._staged else self.committed

    @property
    def next_offset(self) -> int:
        """The offset of the next record, if no control record comes before it."""
        return self.image.offset + 1

    def image_before(self, offset: int) -> MetadataImage:
        """Return the newest image as the state before ``offset``: since its own offset there are only control records.

        An operation takes the offsets of its records from the image that it reads.
        """
        image = self.image
        return image if image.offset + 1 >= offset else image._replace(offset=offset - 1)

    def stage(self, records: Sequence[Struct], base_offset: int | None = None) -> Generator[int, None, StagedChange]:
        """Replay the records of an operation in steps; they are staged after the last step.

        Args:
            base_offset: the offset of the first record; by default the one after the newest image.

        Raises, with nothing staged:
            ValueError: the records do not fit the image.
            NotControllerError: a roll-back meanwhile dropped the image on which the records build.
        """
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
            yield 1
        self.check_newest(delta.base)
        base_offset = self.next_offset if base_offset is None else base_offset
        change = StagedChange(base_offset, records, delta, delta.image(base_offset + len(records) - 1, self.epoch))
        self._staged.append(change)
        return change

    def commit(self, change: StagedChange) -> None:
        """Commit the oldest staged change."""
        if not self._staged or self._staged[0] is not change:
            raise IllegalStateError("metadata changes are committed in the order in which they were staged")
        self._staged.popleft()
        self.committed = change.image

    def check_newest(self, image: MetadataImage) -> None:
        """Raise `NotControllerError` if ``image`` is no longer the newest one: it was rolled back."""
        if self.image is not image:
            raise NotControllerError("the controller dropped uncommitted changes; retry the request")

    def roll_back(self, end_offset: int = 0) -> None:
        """Drop the staged changes at and after ``end_offset``, by default all."""
        while self._staged and self._staged[-1].base_offset >= end_offset:
            self._staged.pop()

    def load(self, image: MetadataImage) -> None:
        """Start from the committed image at the beginning of an epoch that this node leads."""
        self._staged.clear()
        self.committed = image
        self.epoch = image.epoch
