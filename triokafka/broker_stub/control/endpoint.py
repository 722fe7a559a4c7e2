"""The control endpoint: HTTP to switch faults on and off, and to read metrics (``triokafka broker --control``).

``GET /faults`` lists what is armed, ``POST /faults`` arms one (a JSON object) or several (a list), ``DELETE /faults``
disarms all. The fields of a fault are those of `Fault` and `RequestFault`, except that ``api`` is a name or a number,
and ``error`` is the name of an error class, Kafka's name in capitals, or its code::

    curl --json '{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 3}' http://127.0.0.1:9191/faults

``GET /metrics`` gives the broker's metrics in the text format of Prometheus. `Action` is what else a path does to a
broker of a test (stop it, freeze it, fill its disk); `triokafka.testing.control` lists them.

For tests only: a caller may break the broker. A change must be sent as ``application/json``, requests of web pages are
refused, and so is a ``Host`` that is not this machine (`HttpServer`). On an address that other machines can reach, each
request needs a token. One request per connection.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

from triokafka.broker_stub.faults.faults import Fault, Faults, RequestFault, check
from triokafka.broker_stub.faults.names import UnknownNameError, api_key, error_class, nearest
from triokafka.broker_stub.http_server import BadRequestError, HttpRequest, HttpServer, Reply
from triokafka.broker_stub.metrics.catalogue import Sample, as_prometheus_text
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
    """What a path does: called with the decoded JSON of the request (None without a body), it returns the answer's.

    It may raise any `KafkaError`, which is then the answer.
    """

    method: str
    call: Callable[[Any], Awaitable[Any]]


class ControlEndpoint:
    """Serves the control endpoint of one broker.

    `bind` first, so that the address is known; then `run`.

    Args:
        faults: what ``/faults`` shows and changes.
        metrics: gives what ``/metrics`` shows.
        actions: further paths.
        token: what each request must carry as ``Authorization: Bearer TOKEN``. Without one, requests to a loopback
            address need none, and `bind` generates one for any other address.
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
        """Listen, and return host and port; port 0 takes a free one. Raises `OSError`.

        On an address that other machines can reach, a token is generated when none was given.
        """
        address = await self._server.bind(host, port)
        if self.token is None and not self._server.loopback:
            self.token = self._world.random_bytes(32).hex()
            self._server.require_token(self.token)
        return address

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._server.run()

    async def _answer(self, request: HttpRequest) -> Reply:
        if request.method not in _SAFE:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            # A page may send text or a form to any address without asking, but not JSON.
            if kind != _JSON and (request.method == "POST" or request.body):
                return "415 Unsupported Media Type", {"error": f"the header Content-Type must be {_JSON}, not {kind!r}"}
        return await self._carry_out(request.method, request.path, request.body)

    async def _carry_out(self, method: str, path: str, body: bytes) -> tuple[str, Any]:
        if path == _METRICS and method == "GET":
            return "200 OK", as_prometheus_text(self._metrics())
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
    """The fault that an object describes; with an ``error`` it is a `Fault`.

    Raises:
        BadRequestError, ConfigurationError: it describes none; says why.
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
    """A fault as `from_json` takes it; what says nothing is left out."""
    values = {name: value for name, value in asdict(fault).items() if value is not None and value is not False}
    if isinstance(fault, Fault):
        values["error"] = fault.error.__name__
    if "api_key" in values:
        key = values.pop("api_key")
        values["api"] = API_NAMES.get(key, key)
    return values


def _fits(value: Any, declared: str) -> bool:
    """Whether a value is of the type that a field says."""
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
