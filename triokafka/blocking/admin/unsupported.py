"""The calls of `KafkaAdminClient` that the SDK does not support."""

from __future__ import annotations

from typing import NoReturn

from triokafka.errors import UnsupportedVersionError


class UnsupportedCalls:
    """kafka-python's signatures of calls that always raise `UnsupportedVersionError`."""

    def api_versions(self) -> NoReturn:
        """The SDK negotiates versions by itself and does not expose them.

        Raises:
            UnsupportedVersionError: always.
        """
        _refuse("api_versions()")

    def get_broker_version_data(self, broker_id: int) -> NoReturn:
        """As `api_versions`."""
        _refuse("get_broker_version_data()")


def _refuse(what: str) -> NoReturn:
    raise UnsupportedVersionError(
        f"{what}: triokafka's admin client negotiates versions with each broker and does not expose them"
    )
