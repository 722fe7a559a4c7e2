"""Clients that log in by GSSAPI, for the table of logins.

The wrong login has a ticket for another service, whose key the broker does not have. Python clients run in their own
processes, because the environment names the tickets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.interop import franz_client, java_client
from tests.support import login_clients
from tests.support.kdc import REALM, Kdc
from tests.support.login_clients import USER, WRONG_PASSWORD, Address, NotBuiltError, Use

_SERVICE: Final = "kafka"
_REFUSED: Final = 3
_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
_OTHER_SERVICE: Final = "other"


def prepare(kdc: Kdc, directory: Path) -> None:
    """Create the principals of a broker on ``localhost`` and of the clients, with their keytabs and tickets."""
    kdc.keytab("broker", f"{_SERVICE}/localhost")
    kdc.keytab("other", f"{_OTHER_SERVICE}/localhost")
    keytab = kdc.keytab(USER, USER)
    kdc.run("kinit", "-k", "-t", str(keytab), "-c", f"FILE:{directory / USER}.cache", USER)


def login(directory: Path, name: str, principal: str) -> str:
    """Return the login text for a keytab."""
    keytab = f'keyTab="{directory / name}.keytab" principal="{principal}@{REALM}"'
    return f"{_MODULE} required useKeyTab=true storeKey=true {keytab};"


def _service(password: str) -> str:
    return _OTHER_SERVICE if password == WRONG_PASSWORD else _SERVICE


def _triokafka(address: Address, mechanism: str, service: str) -> None:
    login_clients.triokafka(address, mechanism, sasl_kerberos_service_name=service)


def _confluent(address: Address, mechanism: str, service: str) -> None:
    login_clients.confluent(address, mechanism)
    raise AssertionError("confluent-kafka has GSSAPI now: pass the service to it")


def _kafka_python(address: Address, mechanism: str, service: str) -> None:
    patience_ms = 20_000 if service == _SERVICE else 3_000
    login_clients.kafka_python(address, mechanism, patience_ms=patience_ms, sasl_kerberos_service_name=service)


def _aiokafka(address: Address, mechanism: str, service: str) -> None:
    login_clients.aiokafka(address, mechanism, sasl_kerberos_service_name=service)


_PYTHON: Final[Mapping[str, Use]] = {
    "triokafka": _triokafka,
    "confluent-kafka": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
}


def _process(name: str) -> Use:
    """Return a function that runs a client in a process with the tickets of the login."""

    def use(address: Address, mechanism: str, password: str) -> None:
        arguments = (address.bootstrap_servers, address.protocol, str(address.authority), mechanism, _service(password))
        command = [sys.executable, "-m", __name__, name, *arguments]
        environment = {**os.environ, "KRB5CCNAME": f"FILE:{address.authority.with_name(USER)}.cache"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        last = done.stderr.strip().rpartition("\n")[2]
        if done.returncode == _REFUSED:
            raise PermissionError(last)
        if done.returncode:
            raise NotBuiltError(last) if NotBuiltError.__name__ in last else RuntimeError(last)

    return use


def _java(address: Address, mechanism: str, password: str) -> None:
    service = _service(password)
    text = login(address.authority.parent, USER, USER)
    java_client.list_topics(address, mechanism, service, sasl_kerberos_service_name=service, sasl_jaas_config=text)


def _franz(address: Address, mechanism: str, password: str) -> None:
    keytab = str(address.authority.with_name(f"{USER}.keytab"))
    franz_client.send(address, mechanism, USER, keytab, service=_service(password))


CLIENTS: Final[Mapping[str, Use]] = {
    **{name: _process(name) for name in _PYTHON},
    "Java": _java,
    "franz-go": _franz,
}


def main(name: str, servers: str, protocol: str, authority: str, mechanism: str, service: str) -> int:
    """Run a client; return `_REFUSED` if the broker refuses it."""
    try:
        _PYTHON[name](Address(servers, protocol, Path(authority)), mechanism, service)
    except PermissionError as error:
        print(error, file=sys.stderr)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
