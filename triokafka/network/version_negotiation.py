"""The ApiVersions exchange that opens every connection (KIP-35, KIP-511)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from triokafka.errors import KafkaConnectionError, ProtocolError, RequestTimedOutError, UnsupportedVersionError
from triokafka.network.connection import Connection
from triokafka.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse

_API_VERSIONS_KEY: Final = 18
_UNSUPPORTED_VERSION: Final = 35
SOFTWARE_NAME: Final = "triokafka"

ApiVersions = dict[int, tuple[int, int]]
"""The lowest and highest version that a broker supports, by API key."""


class FinalizedFeatures(NamedTuple):
    """The feature levels that the whole cluster runs (KIP-584), as one broker knew them.

    ``epoch`` orders two states of one cluster, the greater is newer; -1 when the broker did not say.
    """

    epoch: int = -1
    levels: Mapping[str, int] = MappingProxyType({})


class VersionNegotiation:
    """Requests a broker's API versions on every connection, and remembers the version of that request."""

    def __init__(self) -> None:
        self.features = FinalizedFeatures()
        self._max_version: int | None = None
        self._only_version: int | None = None

    async def ask(self, connection: Connection, timeout: float | None = None) -> ApiVersions:
        """Return the broker's API versions, waiting at most ``timeout`` seconds for each response.

        Raises:
            UnsupportedVersionError: the response is an error, or lists no API.
            KafkaConnectionError, RequestTimedOutError, ProtocolError: no response, or an invalid one; the connection
                has ended.
        """
        version = ApiVersionsRequest.versions.max if self._max_version is None else self._max_version
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=_software_version())
        try:
            response: ApiVersionsResponse = await connection.call(request, version, timeout=timeout)
        except RequestTimedOutError as error:
            raise RequestTimedOutError(f"{error}. Does this listener expect TLS? Is it a Kafka listener?") from error
        except KafkaConnectionError as error:
            # Some brokers close the connection at an unknown version instead of returning an error.
            self._max_version = 0 if version else None
            raise KafkaConnectionError(
                f"{error} before it sent its API versions. Does this listener expect TLS or SASL?"
            ) from error
        except ProtocolError:
            # librdkafka's mock cluster answers an unknown version in its own format.
            self._max_version = self._only_version = 0
            raise
        if response.error_code == _UNSUPPORTED_VERSION:
            theirs = next((k for k in response.api_keys if k.api_key == _API_VERSIONS_KEY), None)
            version = min(version, max(0, theirs.max_version)) if theirs is not None else 0
            response = await connection.call(request, version, timeout=timeout)
        if response.error_code:
            raise UnsupportedVersionError(f"{connection.name} answers ApiVersions with error {response.error_code}")
        if not response.api_keys:
            raise UnsupportedVersionError(f"{connection.name} supports no API")
        self._max_version = self._only_version
        self.features = FinalizedFeatures(
            response.finalized_features_epoch, {f.name: f.max_version_level for f in response.finalized_features}
        )
        return {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}


@cache
def _software_version() -> str:
    from importlib import metadata  # slow to import, and the lookup parses the package's description

    try:
        return metadata.version("triokafka")
    except metadata.PackageNotFoundError:
        return "unknown"
