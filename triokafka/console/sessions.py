"""The sessions of the page: one view of the cluster for all, or one for each person who has logged in.

A person logs in with a user of the cluster's SASL mechanism: the page then sees and changes what that user may.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from triokafka.console.cluster_view import ClusterView
from triokafka.console.limits import ConsoleLimits
from triokafka.errors import AuthenticationError, ConfigurationError, KafkaError
from triokafka.security.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from triokafka.world import World

_LOGINS_AT_ONCE: Final = 4
_FAILURE_SECONDS: Final = 60.0
_MOST_ADDRESSES: Final = 1_000
_SEEN_SECONDS: Final = 60.0
_MOST_SEEN: Final = 100
_WARM_SECONDS: Final = 1.0
_PASSWORD_MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)
_OWN_CREDENTIALS: Final = frozenset(
    {"sasl_jaas_config", "sasl_jaas_file", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider"}
)
"""Options that would take precedence over the user and the password of a person, or contradict them."""


@dataclass
class Session:
    """A person's view. ``seen`` and ``seen_topics`` have the groups and topics that the page showed, with the time."""

    view: ClusterView
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    used_at: float = 0.0
    seen: dict[str, float] = field(default_factory=dict)
    seen_topics: dict[str, float] = field(default_factory=dict)
    user: str | None = None


class Sessions:
    """All sessions. Their clients run in ``nursery``, until they are idle for too long or log out."""

    def __init__(
        self,
        client: Mapping[str, Any],
        world: World,
        nursery: trio.Nursery,
        limits: ConsoleLimits,
        *,
        needs_login: bool,
    ) -> None:
        self.needs_login = needs_login
        self._client = client
        self._world = world
        self._nursery = nursery
        self._limits = limits
        self._logging_in = trio.CapacityLimiter(_LOGINS_AT_ONCE)
        self._failures = LoginFailures(limits.login_max_failures)
        self._sessions: dict[str, Session] = {}
        self._common: Session | None = None
        self._lock = trio.Lock()

    async def warm(self) -> None:
        """Open the common session and read the names of topics, for the first page. Without login only.

        Returns after `_WARM_SECONDS` at the latest; the rest then goes on in the background.
        """
        if not self.needs_login:
            warmed = trio.Event()
            self._nursery.start_soon(self._warm, warmed)
            with trio.move_on_after(_WARM_SECONDS):
                await warmed.wait()

    async def _warm(self, warmed: trio.Event) -> None:
        with suppress(KafkaError, ExceptionGroup):
            session = await self.find(None)
            assert session is not None, "there is no login"
            await session.view.names()
        warmed.set()

    async def find(self, token: str | None) -> Session | None:
        """Return the session of a token; without login the common one. None means: log in."""
        if not self.needs_login:
            async with self._lock:
                if self._common is None:
                    self._common = await self._open(self._client, None)
            return self._common
        session = self._sessions.get(token or "")
        if session is not None:
            session.used_at = self._world.now()
        return session

    async def log_in(self, user: str, password: str, address: str) -> str:
        """Open a session for a person at an address, and return its new token. A few logins run at a time.

        Raises:
            AuthenticationError: the cluster refuses the credentials, there are too many sessions, or too many logins
                of the address were refused within the last minute.
            KafkaError: no broker answers.
        """
        async with self._logging_in:
            now, most = self._world.now(), self._limits.max_sessions
            if self._failures.too_many(address, now):
                raise AuthenticationError("too many logins of this address were refused: wait a minute")
            if len(self._sessions) + self._logging_in.borrowed_tokens > most:
                raise AuthenticationError(f"there are {most} sessions already: log out elsewhere, or wait")
            session = await self._open(_as_user(self._client, user, password), user)
            try:
                await session.view.admin.describe_cluster()
            except AuthenticationError:
                self._failures.add(address, now)
                session.scope.cancel()
                raise
            except BaseException:
                session.scope.cancel()
                raise
            token = self._world.random_bytes(32).hex()
            self._sessions[token] = session
            return token

    def log_out(self, token: str | None) -> None:
        """End a session."""
        session = self._sessions.pop(token or "", None)
        if session is not None:
            session.scope.cancel()

    async def _open(self, client: Mapping[str, Any], user: str | None) -> Session:
        session = Session(ClusterView(client, self._world, self._limits), used_at=self._world.now(), user=user)
        await self._nursery.start(self._hold, session)
        return session

    async def _hold(self, session: Session, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a session's client open, and sample its groups."""
        with session.scope:
            async with session.view.admin:
                task_status.started()
                with suppress(KafkaError, ExceptionGroup):
                    await session.view.names()  # before the samples, which take seconds in a large cluster
                idle = self._limits.session_idle_ms / 1_000
                while session.user is None or self._world.now() - session.used_at < idle:
                    now = self._world.now()
                    session.seen = _recent(session.seen, now)
                    session.seen_topics = _recent(session.seen_topics, now)
                    # An error is skipped: the next request of the page shows what is wrong.
                    with suppress(KafkaError, ExceptionGroup):
                        await session.view.sample_groups(session.seen)
                    with suppress(KafkaError, ExceptionGroup):
                        await session.view.sample_topics(session.seen_topics)
                    await trio.sleep(self._limits.sample_interval_ms / 1_000)
        for token in [token for token, one in self._sessions.items() if one is session]:
            del self._sessions[token]


def check_passwords_are_checked(client: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` unless brokers check the user and the password of a client with these options.

    A page with a login would otherwise admit everybody.
    """
    protocol, mechanism = client.get("security_protocol", "PLAINTEXT"), client.get("sasl_mechanism")
    if not str(protocol).startswith("SASL_") or mechanism not in _PASSWORD_MECHANISMS:
        raise ConfigurationError(
            f"--login: security_protocol={protocol} with sasl_mechanism={mechanism} checks no passwords. Connect to a"
            f" listener with SASL and one of {', '.join(_PASSWORD_MECHANISMS)}, or do without --login."
        )


def _as_user(client: Mapping[str, Any], user: str, password: str) -> dict[str, Any]:
    """Return the options of a client that logs in as a person, and never as the console."""
    others = {name: value for name, value in client.items() if name not in _OWN_CREDENTIALS}
    return {**others, "sasl_username": user, "sasl_password": password}


def note(seen: dict[str, float], name: str, now: float) -> None:
    """Note that a person has just seen something. The oldest of too many is forgotten."""
    seen.pop(name, None)
    seen[name] = now
    if len(seen) > _MOST_SEEN:
        del seen[next(iter(seen))]


def _recent(seen: Mapping[str, float], now: float) -> dict[str, float]:
    return {name: at for name, at in seen.items() if now - at < _SEEN_SECONDS}


class LoginFailures:
    """Times of refused logins by address, of the last minute. The address that failed longest ago goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str, now: float) -> None:
        """Note a refused login."""
        self._times.setdefault(address, deque(maxlen=self._most)).append(now)
        self._times.move_to_end(address)
        if len(self._times) > _MOST_ADDRESSES:
            self._times.popitem(last=False)

    def too_many(self, address: str, now: float) -> bool:
        """Whether the address has used up its failures."""
        times = self._times.get(address)
        return times is not None and len(times) == self._most and now - times[0] < _FAILURE_SECONDS
