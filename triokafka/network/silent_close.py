"""Why a broker closed a connection without a response: its listener may expect TLS or SASL, or not speak TLS."""

from __future__ import annotations

import enum
from typing import Final

from triokafka.errors import SecurityProtocolMismatchError
from triokafka.network.config import NetworkConfig
from triokafka.network.version_negotiation import ApiVersions
from triokafka.world import World

_SASL_HANDSHAKE_KEY: Final = 17


class SilentClose(enum.Enum):
    """The time at which a broker closed a connection without a response."""

    BEFORE_VERSIONS = "before it sent a byte"
    BEFORE_FIRST_ANSWER = "after its API versions, and before its first other answer"


class SilentCloseExplainer:
    """Explains the silent closes of one channel, each kind once, by asking the broker over fresh connections."""

    def __init__(self, world: World, config: NetworkConfig) -> None:
        self._world = world
        self._config = config
        self._explained: set[SilentClose] = set()

    async def explain(
        self,
        close: SilentClose,
        name: str,
        host: str,
        port: int,
        server_name: str,
        api_versions: ApiVersions,
    ) -> SecurityProtocolMismatchError | None:
        """Return the error that says what the listener of broker ``name`` expects; None when that cannot be seen."""
        if close in self._explained:
            return None
        self._explained.add(close)
        from triokafka.network.listener_probe import ListenerKind, probe_sasl, probe_tls

        security = self._config.security
        if close is SilentClose.BEFORE_FIRST_ANSWER:
            has_sasl = security is not None and security.sasl is not None
            if has_sasl or _SASL_HANDSHAKE_KEY not in api_versions:
                return None
            if await probe_sasl(self._world, self._config, host, port, server_name) is not ListenerKind.SASL:
                return None
            return SecurityProtocolMismatchError(
                f"{name}: this listener expects SASL. Set security_protocol to SASL_PLAINTEXT or SASL_SSL, or use"
                " another port"
            )
        has_tls = security is not None and security.tls is not None
        found = await probe_tls(self._world, self._config, host, port)
        if has_tls and found is ListenerKind.NO_TLS:
            return SecurityProtocolMismatchError(
                f"{name} speaks Kafka's protocol without TLS. Set security_protocol to PLAINTEXT or"
                " SASL_PLAINTEXT, or use another port"
            )
        if not has_tls and found is ListenerKind.TLS:
            return SecurityProtocolMismatchError(
                f"{name} expects TLS. Set security_protocol to SSL or SASL_SSL, or use another port"
            )
        return None
