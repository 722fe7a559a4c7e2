"""Clients that log in by OAUTHBEARER with an unsecured token, for the table of logins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.interop import java_client
from tests.support import login_clients
from tests.support.login_clients import USER, WRONG_PASSWORD, Address, Use
from triokafka.security.sasl.oauthbearer import unsecured_token

_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_FUTURE: Final = 4_000_000_000


def token(password: str) -> str:
    """Return a token of the user.

    A wrong password becomes a token without a subject, which brokers refuse, not clients.
    """
    return unsecured_token({"iat": 1, "exp": _FUTURE} | ({} if password == WRONG_PASSWORD else {"sub": USER}))


def _triokafka(address: Address, mechanism: str, password: str) -> None:
    login_clients.triokafka(address, mechanism, sasl_oauth_token_provider=lambda: token(password))


def _confluent(address: Address, mechanism: str, password: str) -> None:
    login_clients.confluent(address, mechanism, oauth_cb=lambda config: (token(password), float(_FUTURE)))


def _kafka_python(address: Address, mechanism: str, password: str) -> None:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return token(password)

    patience_ms = 1_000 if password == WRONG_PASSWORD else 20_000
    login_clients.kafka_python(address, mechanism, patience_ms=patience_ms, sasl_oauth_token_provider=Tokens())


def _aiokafka(address: Address, mechanism: str, password: str) -> None:
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return token(password)

    login_clients.aiokafka(address, mechanism, sasl_oauth_token_provider=Tokens())


def _java(address: Address, mechanism: str, password: str) -> None:
    """Log in with a token; a wrong one has its name in another claim than the subject."""
    name = "" if password == WRONG_PASSWORD else USER
    good = f'unsecuredLoginStringClaim_sub="{name}"'
    claim = good if name else 'unsecuredLoginPrincipalClaimName="who" unsecuredLoginStringClaim_who="x"'
    java_client.list_topics(address, mechanism, str(bool(name)), sasl_jaas_config=f"{_MODULE} required {claim};")


CLIENTS: Final[Mapping[str, Use]] = {
    "triokafka": _triokafka,
    "confluent-kafka": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "Java": _java,
}
