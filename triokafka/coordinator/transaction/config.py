"""Transaction coordinator configuration, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from triokafka.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCoordinatorConfig:
    """Limits and intervals of the transaction coordinator. Names are Kafka's broker properties in snake_case.

    Raises:
        ConfigurationError: at construction, when a value is out of range.
    """

    transaction_max_timeout_ms: int = 900_000
    """The longest timeout that a producer may ask for."""
    transactional_id_expiration_ms: int = 604_800_000
    """How long an idle transactional id is remembered."""
    abort_timed_out_transactions_interval_ms: int = 10_000
    """How often open transactions are compared with their timeouts."""
    remove_expired_transactions_interval_ms: int = 3_600_000
    """How often idle transactional ids are compared with their retention."""
    add_partitions_wait_ms: int = 100
    """How long the addition of a partition waits while the previous transaction is being completed. Kafka's
    ``add.partitions.to.txn.retry.backoff.max.ms``."""
    state_log_num_partitions: int = 50
    write_timeout_ms: int = 5_000
    """How long an answer waits for its record to be committed."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least = 0 if name == "add_partitions_wait_ms" else 1
            if getattr(self, name) < least:
                raise ConfigurationError(f"{name} must be at least {least}, not {getattr(self, name)}")
