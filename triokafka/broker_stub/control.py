"""The control endpoint: HTTP to switch faults on and off, and to read metrics (``triokafka broker --control``).

``GET /faults`` lists what is armed, ``POST /faults`` arms one (a JSON object) or several (a list), ``DELETE /faults``
disarms all. A fault is what `triokafka.broker_stub.faults` says, by the same names; ``api`` is a name or a number, and
``error`` the name of an error class, Kafka's name in capitals, or its code::

    curl -d '{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 3}' http://127.0.0.1:9191/faults

``GET /metrics`` gives the broker's metrics as text that Prometheus reads. What else a broker of a test can be told to
do (stop, freeze, fill its disk) is given as `Action`: `triokafka.testing.control` says what there is.

For tests only: whoever reaches it may break the broker. One request per connection.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

import trio

from triokafka import errors
from triokafka.broker_stub.fault_names import UnknownNameError, api_key, error_class, nearest
from triokafka.broker_stub.faults import Fault, Faults, RequestFault, check
from triokafka.broker_stub.metrics import Sample, as_prometheus_text
from triokafka.protocol.api import API_NAMES
from triokafka.world import Listener, Stream, World

logger = logging.getLogger(__name__)

T = TypeVar("T")

Metrics = Callable[[], Iterable[Sample]]

_LARGEST_REQUEST: Final = 65_536
_TIMEOUT_SECONDS: Final = 10
_FAULTS: Final = "/faults"
_METRICS: Final = "/metrics"


class BadRequestError(errors.KafkaError):
    """What was asked of the control endpoint makes no sense; the message says why."""


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
    """

    def __init__(
        self, faults: Faults, world: World, metrics: Metrics = tuple, actions: Mapping[str, Action] | None = None
    ) -> None:
        self._faults = faults
        self._metrics = metrics
        self._actions = actions or {}
        self._world = world
        self._listener: Listener | None = None

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return host and port; port 0 takes a free one. Raises `OSError`."""
        self._listener = await self._world.listen(host, port)
        return self._listener.address

    async def run(self) -> None:
        """Serve until cancelled."""
        listener = self._listener
        if listener is None:
            raise errors.IllegalStateError("the control endpoint listens nowhere: bind it first")
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    nursery.start_soon(self._serve, await listener.accept())
        finally:
            listener.close()

    async def _serve(self, stream: Stream) -> None:
        try:
            try:
                with trio.move_on_after(_TIMEOUT_SECONDS) as reading:
                    method, path, body = await _read_request(stream)
                if reading.cancelled_caught:
                    return
                status, answer = await self._answer(method, path, body)
            except errors.KafkaError as error:
                status, answer = "400 Bad Request", _as_answer(error)
            with trio.move_on_after(_TIMEOUT_SECONDS):
                await stream.send(_response(status, answer))
        except OSError as error:
            logger.info("a control connection broke: %r", error)
        finally:
            stream.close()

    async def _answer(self, method: str, path: str, body: bytes) -> tuple[str, Any]:
        try:
            return await self._carry_out(method, path, body)
        except errors.KafkaError:
            raise
        except Exception as error:  # a test may break the broker by what it asks for, but not by how it asks
            logger.exception("%s %s failed in an unforeseen way", method, path)
            return "500 Internal Server Error", _as_answer(error)

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


def _as_answer(error: Exception) -> dict[str, str]:
    return {"error": str(error), "kind": type(error).__name__}


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


async def _read_request(stream: Stream) -> tuple[str, str, bytes]:
    """Method, path and body."""
    data = bytearray()
    while b"\r\n\r\n" not in data:
        await _receive(stream, data)
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise BadRequestError(f"not HTTP: {lines[0]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = headers.get("content-length", "0")
    # Few enough digits for int(), and none of those that it does not take (²).
    if not length.isdecimal() or len(length) > 9 or int(length) > _LARGEST_REQUEST:
        raise BadRequestError(f"content-length {length}; up to {_LARGEST_REQUEST} bytes are taken")
    rest = bytearray(body)
    while len(rest) < int(length):
        await _receive(stream, rest)
    return words[0], words[1], bytes(rest[: int(length)])


async def _receive(stream: Stream, data: bytearray) -> None:
    buffer = bytearray(4096)
    size = await stream.receive_into(memoryview(buffer))
    if not size or len(data) + size > 2 * _LARGEST_REQUEST:
        raise BadRequestError("the request is cut, or too large")
    data += buffer[:size]


def _response(status: str, answer: Any) -> bytes:
    kind, text = ("text/plain", answer) if isinstance(answer, str) else ("application/json", json.dumps(answer) + "\n")
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
