"""The Kerberos credentials of this process, from a keytab or a ticket cache, as Java's Krb5LoginModule takes them.

The package ``gssapi`` (``triokafka[kerberos]``) calls MIT Kerberos or Heimdal. Every method here may wait for the KDC
or a file: call it in a thread.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from triokafka.errors import ConfigurationError, SaslAuthenticationFailedError
from triokafka.named_tuple import NamedTuple
from triokafka.security.sasl.mechanism import CredentialsUnavailableError
from triokafka.security.secret import reveal

MODULE: Final = "Krb5LoginModule"
_RENEW_WINDOW: Final = 0.8
_TEMPORARY: Final = frozenset((2529639068, 2529639066, 2529638944, 2529639107))
"""Codes of MIT Kerberos: no KDC answers, no KDC is known, the ticket has expired, the ticket cache does not exist."""


def gssapi_library() -> Any:
    """Return the module ``gssapi``. Raises `ConfigurationError` if it is missing."""
    try:
        return importlib.import_module("gssapi")
    except ImportError as error:
        raise ConfigurationError(
            "GSSAPI needs the package gssapi and the Kerberos libraries: pip install 'triokafka[kerberos]'"
            f" ({type(error).__name__}: {error})"
        ) from None


class KerberosSettings(NamedTuple):
    """Where the credentials are.

    ``principal`` is the own principal; None for that of the keytab or cache. Without a ``keytab``, the tickets come
    from ``ticket_cache``, by default the user's. ``host`` is that of the broker's principal, if the client connects to
    another one. ``renew_window`` is the part of the tickets' lifetime after which the client logs in again
    (``sasl.kerberos.ticket.renew.window.factor``).
    """

    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None
    service: str = "kafka"
    host: str | None = None
    renew_window: float = _RENEW_WINDOW


def settings_of(options: Mapping[str, str], **more: Any) -> KerberosSettings:
    """Return the settings from the options of a Krb5LoginModule, and ``more`` fields by name.

    Raises:
        ConfigurationError: ``useKeyTab`` is set without ``keyTab``, or the module prompts for a password.
    """
    texts = {name.lower(): reveal(value) for name, value in options.items()}
    principal = texts.get("principal")
    keytab = cache = None
    if texts.get("usekeytab", "").lower() == "true":
        keytab = texts.get("keytab", "").removeprefix("file:")
        if not keytab:
            raise ConfigurationError(f"{MODULE}: useKeyTab needs keyTab, the path of the keytab")
    elif texts.get("useticketcache", "").lower() == "true":
        cache = texts.get("ticketcache")
    else:
        raise ConfigurationError(f"{MODULE}: set useKeyTab=true with keyTab, or useTicketCache=true")
    return KerberosSettings(principal, keytab, cache, **more)


class KerberosLogin:
    """The credentials of a client or of a broker, acquired when they are first needed."""

    def __init__(self, settings: KerberosSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._known: Any = None
        self._renew_at = 0.0

    def initiate(self, now: float) -> Any:
        """Return the credentials of a client. A login by keytab is renewed in the last part of its lifetime.

        ``now`` is the time in seconds, on a clock that does not jump.

        Raises:
            CredentialsUnavailableError: there are no tickets, or the KDC cannot be reached.
            SaslAuthenticationFailedError: the KDC refuses the login.
        """
        settings = self.settings
        if settings.keytab is None:
            # Somebody else renews the tickets of a cache, so it is read for every connection.
            return self._acquire("initiate", {} if settings.ticket_cache is None else {"ccache": settings.ticket_cache})
        with self._lock:
            if self._known is None or now >= self._renew_at:
                store = {"client_keytab": settings.keytab, "ccache": _cache_of(settings.keytab, settings.principal)}
                credentials = self._acquire("initiate", store)
                lifetime = credentials.lifetime
                self._known = credentials
                self._renew_at = now + (lifetime or 0) * settings.renew_window
            return self._known

    def accept(self) -> Any:
        """Return the credentials of a broker, from its keytab, which may have new keys since.

        Raises:
            SaslAuthenticationFailedError: the keytab has no key of the principal, or cannot be read.
        """
        keytab = self.settings.keytab
        return self._acquire("accept", {} if keytab is None else {"keytab": keytab})

    def _acquire(self, usage: str, store: dict[str, str]) -> Any:
        gssapi = gssapi_library()
        principal = self.settings.principal
        try:
            name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            return gssapi.Credentials(name=name, mechs=[gssapi.MechType.kerberos], usage=usage, store=store or None)
        except gssapi.exceptions.GSSError as error:
            raise failure_of(error, f"Kerberos: no credentials to {usage}") from None


def _cache_of(keytab: str, principal: str | None) -> str:
    """Return the name of the cache in memory for tickets of a keytab.

    Such a cache lasts as long as the process, and the library prefers its tickets to the keytab. So each principal and
    each version of a keytab has its own, which all logins with them share.
    """
    try:
        status = os.stat(keytab)
    except OSError:
        version = "unreadable"  # the library gives the reason
    else:
        version = f"{status.st_dev}/{status.st_ino}/{status.st_size}/{status.st_mtime_ns}"
    return f"MEMORY:triokafka {principal or ''} {version} {keytab}"


def failure_of(error: Any, what: str) -> SaslAuthenticationFailedError:
    """Return the error for ``what`` and an error of the library.

    It is `CredentialsUnavailableError` if there are no valid tickets now, and no KDC has refused the principal.
    """
    exceptions = gssapi_library().exceptions
    lacking = isinstance(error, (exceptions.ExpiredCredentialsError, exceptions.MissingCredentialsError))
    kind = CredentialsUnavailableError if lacking or error.min_code in _TEMPORARY else SaslAuthenticationFailedError
    return kind(f"{what}: {reason(error)}")


def reason(error: BaseException) -> str:
    """Return the text of an error of the library in one line."""
    return " ".join(str(error).split())[:500]


def default_realm() -> str:
    """Return the default realm of this machine; empty if it has none."""
    gssapi = gssapi_library()
    try:
        # The library qualifies a name without a realm when it makes it canonical.
        name = gssapi.Name("nobody", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).rpartition("@")[2]
