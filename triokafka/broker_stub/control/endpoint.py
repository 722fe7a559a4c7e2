"""The control endpoint: an HTTP interface to faults and metrics (``triokafka broker --control``).

``GET /faults`` lists the armed faults, ``POST /faults`` arms one (a JSON object) or several (a list), and
``DELETE /faults`` disarms all. The fields of a fault are those of `Fault` and `RequestFault`, except that ``api`` is a
name or a number, and ``error`` is the name of an error class, Kafka's name in capitals, or its code::

    curl --json '{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 3}' http://127.0.0.1:9191/faults

``GET /metrics`` returns the broker's metrics in the text format of Prometheus. Tests add further paths as `Action`
objects (stop the broker, freeze it, fill its disk); `triokafka.testing.control` lists them.

The endpoint is for tests only: its callers can break the broker. Changes require ``application/json``. The endpoint
refuses requests of web pages, and a ``Host`` that is not this machine (`HttpServer`). On an address that other machines
can reach, each request needs a token. It serves one request per connection.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

from triokafka.broker_stub.faults.faults import Fault, Faults, RequestFault, check
from triokafka.broker_stub.faults.names import UnknownNameError, api_key, error_class, nearest
from triokafka.broker_stub.http_server import BadRequestError, HttpRequest, HttpServer, Reply
from triokafka.broker_stub.metrics.prometheus import prometheus_text
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.protocol.api import API_NAMES
from triokafka.world import World

T = TypeVar("T")

Metrics = Callable[[], Iterable[Sample]]

_SAFE: Final = ("GET", "HEAD")
_JSON: Final = "application/json"
_FAULTS: Final = "/faults"
_METRICS: Final = "/metrics"


@dataclass(frozen=True, slots=True)
class Action:
    """The function behind a path, from the request's decoded JSON (None without a body) to the response's JSON.

    The response to any `KafkaError` that it raises is an error.
    """

    method: str
    call: Callable[[Any], Awaitable[Any]]


class ControlEndpoint:
    """Serves the control endpoint of one broker.

    Call `bind`, which returns the address, and then `run`.

    Args:
        faults: the faults behind ``/faults``.
        metrics: returns the samples for ``/metrics``.
        actions: further paths.
        token: the token that each request must send as ``Authorization: Bearer TOKEN``. Without this argument, a
            loopback address needs no token, and `bind` generates one for any other address.
    """

    def __init__(
        self,
        faults: Faults,
        world: World,
        metrics: Metrics = tuple,
        actions: Mapping[str, Action] | None = None,
        *,
        token: str | None = None,
    ) -> None:
        self._faults = faults
        self._metrics = metrics
        self._actions = actions or {}
        self._world = world
        self.token = token
        self._server = HttpServer(world, "the control endpoint", self._answer, token=token)

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Listen and return host and port; port 0 selects a free port. Raises `OSError`.

        Generates a token for an address that other machines can reach, unless the constructor received one.
        """
        address = await self._server.bind(host, port)
        if self.token is None and not self._server.loopback:
            self.token = self._server.token = self._world.random_bytes(32).hex()
        return address

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._server.run()

    async def _answer(self, request: HttpRequest) -> Reply:
        if request.method not in _SAFE:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            # A web page can send text or a form to any address without a CORS preflight request, but not JSON.
            if kind != _JSON and (request.method == "POST" or request.body):
                return "415 Unsupported Media Type", {"error": f"the header Content-Type must be {_JSON}, not {kind!r}"}
        return await self.carry_out(request.method, request.path, request.body)

    async def carry_out(self, method: str, path: str, body: bytes) -> tuple[str, Any]:
        """Return status line and answer of a request, also of this process itself. Raises `KafkaError`."""
        if path == _METRICS and method == "GET":
            return "200 OK", await prometheus_text(self._metrics(), self._world)
        action = self._actions.get(path)
        if action is not None:
            if method != action.method:
                return "405 Method Not Allowed", {"error": f"{method}: {path} is for {action.method}"}
            return "200 OK", await action.call(_decoded(body) if body.strip() else None)
        if path != _FAULTS:
            there = (_FAULTS, _METRICS, *self._actions)
            return "404 Not Found", {"error": f"{path} is not there; {', '.join(there)} are{nearest(path, there)}"}
        match method:
            case "GET":
                pass
            case "POST":
                for fault in _faults_of(body):
                    self._faults.arm(fault)
            case "DELETE":
                self._faults.disarm_all()
            case _:
                return "405 Method Not Allowed", {"error": f"{method}: GET, POST and DELETE are served"}
        return "200 OK", [as_json(fault) for fault in self._faults.all]


def from_json(value: Any) -> Fault | RequestFault:
    """Return the fault that a JSON object describes: a `Fault` if it has an ``error``, else a `RequestFault`.

    Raises:
        BadRequestError, ConfigurationError: the object describes no fault; the message contains the reason.
    """
    if not isinstance(value, Mapping):
        raise BadRequestError(f"a fault is an object, not {value!r}")
    values = dict(value)
    if "api" in values:
        values["api_key"] = _named(api_key, values.pop("api"))
    kind: type[Fault | RequestFault] = Fault if "error" in values else RequestFault
    if kind is Fault:
        values["error"] = _named(error_class, values["error"])
        if isinstance(values.get("leader"), list):
            values["leader"] = tuple(values["leader"])
    known = {field.name: field.type for field in fields(kind)}
    for name, given in values.items():
        if name not in known:
            near = nearest(name, known)
            raise BadRequestError(f"{name} is not one of {', '.join(sorted(known))}{near}")
        if not _fits(given, str(known[name])):
            raise BadRequestError(f"{name} cannot be {given!r}")
    fault = kind(**values)
    check(fault)
    return fault


def as_json(fault: Fault | RequestFault) -> dict[str, Any]:
    """Return a fault as a JSON object for `from_json`, without fields that are None or False."""
    values = {name: value for name, value in asdict(fault).items() if value is not None and value is not False}
    if isinstance(fault, Fault):
        values["error"] = fault.error.__name__
    if "api_key" in values:
        key = values.pop("api_key")
        values["api"] = API_NAMES.get(key, key)
    return values


def _fits(value: Any, declared: str) -> bool:
    """Whether a value has the declared type of a field."""
    if value is None:
        return "None" in declared
    if "BrokerResponseError" in declared:
        return True
    if "Close" in declared:
        return value in ("before", "after", "within")
    if "tuple" in declared:
        return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, int) for part in value)
    if isinstance(value, bool):
        return declared == "bool"
    if "float" in declared:
        return isinstance(value, int | float)
    return isinstance(value, int) if "int" in declared else isinstance(value, str) and "str" in declared


def _named(find: Callable[[Any], T], name: Any) -> T:
    try:
        return find(name)
    except UnknownNameError as error:
        raise BadRequestError(str(error)) from None


def _faults_of(body: bytes) -> list[Fault | RequestFault]:
    value = _decoded(body)
    return [from_json(item) for item in (value if isinstance(value, list) else [value])]


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from None
