"""franz-go, the Go client, for the table of logins: builds the program in ``franz`` with ``go``, and runs it."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.interop import jvm, token_clients
from tests.support.login_clients import USER, Address

_SOURCE: Final = Path(__file__).parent / "franz"
_REFUSED: Final = 3


@cache
def program() -> str:
    """Build the program, and return its path."""
    go = shutil.which("go")
    assert go is not None, "go was not found: install Go to run franz-go"
    target = jvm.WORK / "franz"
    with jvm.one_at_a_time("franz"):
        done = subprocess.run(
            [go, "build", "-o", str(target), "."], cwd=_SOURCE, capture_output=True, text=True, timeout=900, check=False
        )
    assert done.returncode == 0, done.stderr
    return str(target)


def send(address: Address, mechanism: str, user: str, secret: str, *, service: str = "kafka") -> None:
    """Send a record. Raises `PermissionError` if the broker refuses the login."""
    tls = ["-authority", str(address.authority)] if address.tls else []
    login = ["-mechanism", mechanism, "-user", user, "-secret", secret, "-service", service]
    command = [program(), "-bootstrap", address.bootstrap_servers, *tls, *login]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode == _REFUSED:
        raise PermissionError(done.stderr)
    assert done.returncode == 0, done.stderr


def by_password(address: Address, mechanism: str, password: str) -> None:
    """Log in with PLAIN or SCRAM."""
    send(address, mechanism, USER, password)


def by_token(address: Address, mechanism: str, password: str) -> None:
    """Log in with an unsecured token."""
    send(address, mechanism, "", token_clients.token(password))
