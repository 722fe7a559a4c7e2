"""A command names unresponsive brokers only if they are the cause of its failure."""

from __future__ import annotations

import pytest

from triokafka.cli.unreachable_brokers import Reaching
from triokafka.errors import (
    AuthenticationError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
)


@pytest.mark.parametrize("error", [KafkaTimeoutError("late"), KafkaConnectionError("refused")])
def test_without_an_answer_a_timeout_names_the_brokers(error: KafkaError) -> None:
    reaching = Reaching("h:1", 5_000)
    for raised in (error, ExceptionGroup("two", [error, error])):
        assert str(reaching.failure(raised)).startswith("no broker has responded within 5 s: h:1 has not responded yet")


@pytest.mark.parametrize("error", [InvalidTopicError("a b"), AuthenticationError("refused"), ValueError("no number")])
def test_error_without_a_broker_is_unchanged(error: Exception) -> None:
    reaching = Reaching("h:1", 5_000)
    assert reaching.failure(error) is error
    group = ExceptionGroup("two", [error, KafkaTimeoutError("late")])
    assert reaching.failure(group) is group


def test_errors_after_a_response_are_unchanged() -> None:
    reaching = Reaching("h:1", 5_000)
    reaching.answered = True
    error = KafkaTimeoutError("late")
    assert reaching.failure(error) is error
