"""The values of ``partition_assignment_strategy``: built-in names, Java class names and entry points."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Final

from triokafka.assignors.assignor import PartitionAssignor
from triokafka.assignors.range import RangeAssignor
from triokafka.assignors.roundrobin import RoundRobinAssignor
from triokafka.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from triokafka.errors import ConfigurationError

ENTRY_POINT_GROUP: Final = "triokafka.assignors"
Strategy = PartitionAssignor | type[PartitionAssignor] | str

BUILT_IN: Final[dict[str, type[PartitionAssignor]]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
"""Assignor classes by protocol name."""

JAVA_NAMES: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
"""Kafka's Java class names, as used in configuration files, to protocol names."""


def resolve_assignors(
    strategies: Strategy | Iterable[Strategy],
) -> list[PartitionAssignor]:
    """Resolve the option ``partition_assignment_strategy`` into assignors, in order of preference.

    Each strategy is a `PartitionAssignor`, a subclass of it, a built-in name, the Java class name of a built-in, or the
    name of an entry point in the group ``triokafka.assignors``. A string may name several, separated by commas.

    Raises:
        ConfigurationError: a name is unknown, two strategies have the same name, or none is given.
    """
    if isinstance(strategies, str):
        wanted: list[Strategy] = [part.strip() for part in strategies.split(",") if part.strip()]
    elif isinstance(strategies, (PartitionAssignor, type)):
        wanted = [strategies]
    else:
        wanted = list(strategies)
    found = [_resolve(strategy) for strategy in wanted]
    names = [assignor.name for assignor in found]
    if not found:
        raise ConfigurationError("partition_assignment_strategy is empty: give at least one assignor")
    if len(set(names)) != len(names):
        raise ConfigurationError(f"partition_assignment_strategy: two assignors have the same name in {names}")
    return found


def _resolve(strategy: Strategy) -> PartitionAssignor:
    if isinstance(strategy, PartitionAssignor):
        return strategy
    if isinstance(strategy, type) and issubclass(strategy, PartitionAssignor):
        return strategy()
    if not isinstance(strategy, str):
        raise ConfigurationError(f"partition_assignment_strategy: {strategy!r} is neither a name nor an assignor")
    built_in = BUILT_IN.get(JAVA_NAMES.get(strategy, strategy))
    if built_in is not None:
        return built_in()
    from importlib.metadata import entry_points

    plugged_in = entry_points(group=ENTRY_POINT_GROUP)
    for entry_point in plugged_in.select(name=strategy):
        try:
            plugged: object = entry_point.load()
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"entry point {strategy!r} in {ENTRY_POINT_GROUP} cannot be loaded from {entry_point.value!r}: {error}"
            ) from error
        if isinstance(plugged, PartitionAssignor):
            try:
                return copy.deepcopy(plugged)  # an assignor may remember its assignment, so each consumer has its own
            except Exception as error:
                raise ConfigurationError(
                    f"entry point {strategy!r} in {ENTRY_POINT_GROUP} is an object that cannot be copied for each"
                    f" consumer: {error}. Make the entry point name the class instead"
                ) from error
        if isinstance(plugged, type) and issubclass(plugged, PartitionAssignor):
            return plugged()
        raise ConfigurationError(f"entry point {strategy!r} in {ENTRY_POINT_GROUP} is {plugged!r}, not an assignor")
    import difflib

    known = list(dict.fromkeys((*BUILT_IN, *plugged_in.names)))
    near = difflib.get_close_matches(strategy, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    raise ConfigurationError(f"partition_assignment_strategy: there is no assignor {strategy!r}; {hint}")
