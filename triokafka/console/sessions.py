"""Who uses the page: one view of the cluster for all, or one for each person who has logged in.

A person logs in with a user of the cluster's SASL mechanism: the page then sees and changes what that user may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from triokafka.console.cluster_view import ClusterView
from triokafka.errors import AuthenticationError, KafkaError
from triokafka.world import World

MOST_SESSIONS: Final = 50
IDLE_SECONDS: Final = 1_800.0
_SAMPLE_SECONDS: Final = 5.0
_SEEN_SECONDS: Final = 60.0


@dataclass
class Session:
    """A person's view. ``seen`` has the groups that the page showed, with the time."""

    view: ClusterView
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    used_at: float = 0.0
    seen: dict[str, float] = field(default_factory=dict)
    user: str | None = None


class Sessions:
    """All sessions. Their clients run in ``nursery``, until they are idle for `IDLE_SECONDS` or log out."""

    def __init__(self, client: Mapping[str, Any], world: World, nursery: trio.Nursery, *, needs_login: bool) -> None:
        self.needs_login = needs_login
        self._client = client
        self._world = world
        self._nursery = nursery
        self._sessions: dict[str, Session] = {}
        self._common: Session | None = None
        self._lock = trio.Lock()

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

    async def log_in(self, user: str, password: str) -> str:
        """Open a session, and return its token.

        Raises:
            AuthenticationError: the cluster refuses the credentials, or there are too many sessions.
            KafkaError: no broker answers.
        """
        if len(self._sessions) >= MOST_SESSIONS:
            raise AuthenticationError(f"there are {MOST_SESSIONS} sessions already: log out elsewhere, or wait")
        session = await self._open({**self._client, "sasl_username": user, "sasl_password": password}, user)
        try:
            await session.view.admin.describe_cluster()
        except KafkaError:
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
        session = Session(ClusterView(client, self._world), used_at=self._world.now(), user=user)
        await self._nursery.start(self._hold, session)
        return session

    async def _hold(self, session: Session, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a session's client open, and sample its groups."""
        with session.scope:
            async with session.view.admin:
                task_status.started()
                while user_is_there(session, self._world.now()):
                    now = self._world.now()
                    session.seen = {group: at for group, at in session.seen.items() if now - at < _SEEN_SECONDS}
                    try:
                        await session.view.sample_groups(session.seen)
                    except (KafkaError, ExceptionGroup):
                        pass  # the next request of the page shows what is wrong
                    await trio.sleep(_SAMPLE_SECONDS)
        for token in [token for token, one in self._sessions.items() if one is session]:
            del self._sessions[token]


def user_is_there(session: Session, now: float) -> bool:
    """Whether a session goes on: the common one always does."""
    return session.user is None or now - session.used_at < IDLE_SECONDS
