"""The argument of ``storage format --add-scram``: a user and a password as the first records of a cluster (KIP-900)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from triokafka.security.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, salt_password

if TYPE_CHECKING:
    from triokafka.protocol.stored.cluster_metadata import UserScramCredentialRecord

_SALT_BYTES: Final = 24
_KEYS: Final = frozenset({"name", "password", "saltedpassword", "salt", "iterations"})
MIN_METADATA_VERSION: Final = 11
"""The first level of ``metadata.version`` with SCRAM credentials: Kafka 3.5."""


def scram_record(text: str, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    """Return the record of ``SCRAM-SHA-256=[name=alice,password=…]``, with Kafka's keys.

    Raises:
        UsageError: the argument is wrong. The message never has a password.
    """
    from triokafka.broker_stub.controller.scram_control import credential_record

    name, equals, rest = text.strip().partition("=")
    mechanism = next((one for one in ScramMechanism if one.mechanism_name == name), None)
    if not equals or mechanism is None:
        raise _wrong("it does not begin with SCRAM-SHA-256= or SCRAM-SHA-512=")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise _wrong("the configuration is not in brackets, as in SCRAM-SHA-256=[name=alice,password=…]")
    values: dict[str, str] = {}
    for part in rest[1:-1].split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or key not in _KEYS:
            raise _wrong(f"its keys are {', '.join(sorted(_KEYS))}, each with = and a value without commas")
        values[key] = value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value
    if not values.get("name"):
        raise _wrong("the name is missing")
    iterations = values.get("iterations", str(MIN_ITERATIONS))
    if not iterations.isdecimal() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
        raise _wrong(f"iterations are {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    salt = _decoded(values["salt"], "salt") if "salt" in values else random_bytes(_SALT_BYTES)
    if values.get("password"):
        salted = salt_password(mechanism, values["password"].encode(), salt, int(iterations))
    elif not values.get("saltedpassword"):
        raise _wrong("password or saltedpassword is missing")
    elif "salt" not in values:
        raise _wrong("saltedpassword needs salt")
    else:
        salted = _decoded(values["saltedpassword"], "saltedpassword")
    return credential_record(values["name"], mechanism, salted, salt, int(iterations))


def _decoded(text: str, key: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _wrong(f"{key} is not Base64") from None


def _wrong(problem: str) -> click.UsageError:
    return click.UsageError(f"--add-scram: {problem}.")
