"""Paths of the control endpoint for the calls of `RunningBroker` and `RunningCluster`, except request faults.

Each call is a ``POST`` of ``application/json`` with an object of parameters, and the response is an object:

======================  ===========================================  ===================================================
path                    parameters                                   answer
======================  ===========================================  ===================================================
``/cut-connections``                                                 ``connections``: how many there were
``/freeze``             ``broker``
``/thaw``               ``broker``
``/fill-disk``          ``free_bytes``
``/free-disk``
``/stop``               ``broker``, ``clean``, ``move``
``/start``              ``broker``
``/restart``            ``broker``, ``clean``, ``move``
``/kill``               ``broker``
``/partition-network``  ``groups``: lists of broker ids
``/heal``
``/advance-clock``      ``ms``
``/members``            ``group``                                    ``members``: member, client and instance ids
``/expire-member``      ``group``, ``member``                        ``member``: its id
``/move-leader``        ``topic``, ``partition``, ``to``             ``leader``: its id
``/move-coordinator``   ``group``, ``to``                            ``coordinator``: its id
``/reset``
======================  ===========================================  ===================================================

``broker`` is an id, optional for a single broker. Parameters have the same meaning as in Python, and
have the same defaults. ``GET /brokers`` lists the brokers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from triokafka.broker_stub.control.endpoint import Action, Metrics
from triokafka.broker_stub.faults.names import nearest
from triokafka.broker_stub.http_server import BadRequestError
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.testing.broker import RunningBroker
from triokafka.testing.cluster import RunningCluster

Target = RunningBroker | RunningCluster
Values = Mapping[str, Any]

_REQUIRED: Final = object()
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "broker": (int,),
    "groups": (list,),
    "free_bytes": (int,),
    "clean": (bool,),
    "move": (bool,),
    "ms": (int,),
    "group": (str,),
    "member": (str, type(None)),
    "topic": (str,),
    "partition": (int,),
    "to": (int, type(None)),
}


def control_actions(target: Target) -> dict[str, Action]:
    """The paths and their handlers."""
    calls = _Calls(target)
    one = {"broker": None}
    leaving = {**one, "clean": True, "move": False}
    declared: list[tuple[str, Callable[[Values], Awaitable[Any]], Values]] = [
        ("/cut-connections", calls.cut_connections, {}),
        ("/freeze", calls.freeze, one),
        ("/thaw", calls.thaw, one),
        ("/fill-disk", calls.fill_disk, {"free_bytes": 0}),
        ("/free-disk", calls.free_disk, {}),
        ("/stop", calls.stop, leaving),
        ("/start", calls.start, one),
        ("/restart", calls.restart, leaving),
        ("/kill", calls.kill, one),
        ("/partition-network", calls.partition_network, {"groups": _REQUIRED}),
        ("/heal", calls.heal, {}),
        ("/advance-clock", calls.advance_clock, {"ms": _REQUIRED}),
        ("/members", calls.members, {"group": _REQUIRED}),
        ("/expire-member", calls.expire_member, {"group": _REQUIRED, "member": None}),
        ("/move-leader", calls.move_leader, {"topic": _REQUIRED, "partition": 0, "to": None}),
        ("/move-coordinator", calls.move_coordinator, {"group": _REQUIRED, "to": None}),
        ("/reset", calls.reset, {}),
    ]
    actions = {path: Action("POST", _checked(path, call, parameters)) for path, call, parameters in declared}
    actions["/brokers"] = Action("GET", _checked("/brokers", calls.brokers, {}))
    return actions


def control_readiness(target: Target) -> Callable[[], bool]:
    """Return a function that says whether every broker runs and is not fenced."""
    return lambda: all(broker.broker.ready for broker in brokers_of(target) if broker.is_running)


def control_metrics(target: Target) -> Metrics:
    """Return the metrics of the broker, or of the first running one."""

    def metrics() -> Iterable[Sample]:
        running = [broker for broker in brokers_of(target) if broker.is_running]
        return running[0].broker.metrics() if running else ()

    return metrics


def brokers_of(target: Target) -> list[RunningBroker]:
    """Return the broker, or the brokers of the cluster."""
    return target.brokers if isinstance(target, RunningCluster) else [target]


def _checked(
    path: str, call: Callable[[Values], Awaitable[Any]], parameters: Values
) -> Callable[[Any], Awaitable[Any]]:
    async def checked(given: Any) -> Any:
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            raise BadRequestError(f"{path} takes an object, not {given!r}")
        for name, value in given.items():
            if name not in parameters:
                takes = f"takes {', '.join(parameters)}" if parameters else "takes no parameters"
                raise BadRequestError(f"{path} {takes}, not {name}{nearest(name, parameters)}")
            kinds = _TYPES[name]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise BadRequestError(f"{name} cannot be {value!r}")
        values = {**parameters, **given}
        missing = [name for name, value in values.items() if value is _REQUIRED]
        if missing:
            raise BadRequestError(f"{path} needs {', '.join(missing)}")
        try:
            answer = await call(values)
        except ValueError as error:
            raise BadRequestError(str(error)) from None
        return {} if answer is None else answer

    return checked


class _Calls:
    """One method per path; it returns the answer, or None for an empty one."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def _one(self, values: Values) -> RunningBroker:
        node_id = values["broker"]
        brokers = brokers_of(self._target)
        for broker in brokers:
            if broker.node_id == node_id or (node_id is None and len(brokers) == 1):
                return broker
        raise BadRequestError(f"broker must be one of {[broker.node_id for broker in brokers]}, not {node_id}")

    async def brokers(self, values: Values) -> Any:
        return {
            "brokers": [
                {
                    "broker": b.node_id,
                    "bootstrap_servers": b.bootstrap_servers,
                    "running": b.is_running,
                    "frozen": b.is_running and b.world.is_frozen,
                }
                for b in brokers_of(self._target)
            ]
        }

    async def cut_connections(self, values: Values) -> Any:
        return {"connections": self._target.cut_connections()}

    async def freeze(self, values: Values) -> None:
        self._one(values).freeze()

    async def thaw(self, values: Values) -> None:
        self._one(values).thaw()

    async def fill_disk(self, values: Values) -> None:
        self._target.fill_disk(free_bytes=values["free_bytes"])

    async def free_disk(self, values: Values) -> None:
        self._target.free_disk()

    async def stop(self, values: Values) -> None:
        broker = self._one(values)
        if isinstance(self._target, RunningCluster):
            await self._target.stop(broker.node_id, clean=values["clean"], move=values["move"])
        else:
            await broker.stop(clean=values["clean"])

    async def start(self, values: Values) -> None:
        await self._one(values).start()

    async def restart(self, values: Values) -> None:
        await self.stop(values)
        await self.start(values)

    async def kill(self, values: Values) -> None:
        await self._one(values).kill()

    async def partition_network(self, values: Values) -> None:
        if not isinstance(self._target, RunningCluster):
            raise BadRequestError("/partition-network needs a cluster: triokafka broker --nodes 3")
        groups = values["groups"]
        if not all(isinstance(group, list) and all(type(one) is int for one in group) for group in groups):
            raise BadRequestError(f"groups must be lists of broker ids, as in [[1], [2, 3]], not {groups!r}")
        self._target.partition_network(groups)

    async def heal(self, values: Values) -> None:
        self._target.heal()

    async def advance_clock(self, values: Values) -> None:
        self._target.advance_clock(values["ms"])

    async def members(self, values: Values) -> Any:
        return {
            "members": [
                {"member_id": one.member_id, "client_id": one.client_id, "instance_id": one.instance_id}
                for one in self._target.members(values["group"])
            ]
        }

    async def expire_member(self, values: Values) -> Any:
        return {"member": self._target.expire_member(values["group"], values["member"])}

    async def move_leader(self, values: Values) -> Any:
        return {"leader": await self._target.move_leader(values["topic"], values["partition"], to=values["to"])}

    async def move_coordinator(self, values: Values) -> Any:
        return {"coordinator": await self._target.move_coordinator(values["group"], to=values["to"])}

    async def reset(self, values: Values) -> None:
        self._target.reset()
