"""Administrative requests whose time limit has passed on arrival get the same responses as from Apache Kafka."""

from __future__ import annotations

import trio

from tests.support.admin_timeouts import answers, expected
from tests.support.broker_process import broker_process


def test_every_api_with_a_time_limit_answers_as_apache_kafka_does() -> None:
    """kafka-go's default for ElectLeaders is a limit of zero; Kafka responds with REQUEST_TIMED_OUT, too."""
    with broker_process() as bootstrap:
        assert trio.run(answers, bootstrap) == expected()
