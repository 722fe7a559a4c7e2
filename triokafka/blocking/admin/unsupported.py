"""The calls of `KafkaAdminClient` that the SDK does not support yet."""

from __future__ import annotations

from typing import Any, NoReturn

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

    def describe_acls(self, acl_filter: Any) -> NoReturn:
        """Access control lists are not supported yet.

        Raises:
            UnsupportedVersionError: always.
        """
        _refuse("access control lists")

    def create_acls(self, acls: Any) -> NoReturn:
        """As `describe_acls`."""
        _refuse("access control lists")

    def delete_acls(self, acl_filters: Any) -> NoReturn:
        """As `describe_acls`."""
        _refuse("access control lists")

    def alter_user_scram_credentials(self, alterations: Any) -> NoReturn:
        """SCRAM users are not supported yet.

        Raises:
            UnsupportedVersionError: always.
        """
        _refuse("SCRAM users")

    def describe_user_scram_credentials(self, users: Any = None) -> NoReturn:
        """As `alter_user_scram_credentials`."""
        _refuse("SCRAM users")


def _refuse(what: str) -> NoReturn:
    raise UnsupportedVersionError(f"{what}: triokafka's admin client and broker do not support it yet")
