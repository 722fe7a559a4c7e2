"""When a client replaces a token: ahead of its expiry, by Kafka's settings ``sasl.login.refresh.*``. No I/O."""

from __future__ import annotations

from triokafka.named_tuple import NamedTuple


class RefreshWindow(NamedTuple):
    """The part of a token's life after which it is replaced, and limits in seconds.

    ``min_period`` is the shortest time between two replacements, ``buffer`` the time before the expiry that is kept.
    Both are ignored when they do not fit into the rest of the token's life.
    """

    factor: float = 0.8
    jitter: float = 0.05
    min_period: float = 60
    buffer: float = 300

    def refresh_at_ms(self, *, now_ms: int, begins_ms: int | None, expires_ms: int, random: float) -> int:
        """Return when to replace a token that was received at ``now_ms``; ``random`` is from 0 to 1."""
        share = self.factor + self.jitter * random
        if now_ms + 1000 * (self.min_period + self.buffer) > expires_ms:
            return now_ms + int((expires_ms - now_ms) * share)
        begins_ms = now_ms if begins_ms is None else begins_ms
        proposed = begins_ms + int((expires_ms - begins_ms) * share)
        latest, earliest = expires_ms - int(1000 * self.buffer), now_ms + int(1000 * self.min_period)
        return latest if proposed > latest else max(proposed, earliest)
