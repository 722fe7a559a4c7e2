"""A client of schema registries with Confluent's protocol, and the envelope that its serializers put around values.

A schema with an id never changes, so every answer is cached. The envelope is a zero byte, the schema id in four bytes,
and the payload.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from triokafka.backoff import Backoff
from triokafka.errors import ClosedError, ConfigurationError, KafkaError
from triokafka.formats.decoding import DecodeError
from triokafka.world import World
from triokafka.world.system import RealWorld

if TYPE_CHECKING:
    import pyarrow as pa

ENVELOPE_BYTES: Final = 5
_MAGIC: Final = b"\0"
_END: Final = 2**31 - 1  # pyarrow 26 fails on values of five bytes without an end
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_TRIES: Final = 6
_BACKOFF: Final = Backoff(0.1, 2.0)
_NOT_FOUND: Final = 404


class SchemaRegistryError(KafkaError):
    """The registry does not answer, or refuses the request."""

    advice = "Check the registry's address and credentials"


class UnknownSchemaError(SchemaRegistryError):
    """The registry has no such schema: values that name it cannot be decoded."""

    advice = "Check whether the value was written with a schema of this registry"


class UnknownSubjectError(UnknownSchemaError):
    """The registry has no schema for a subject: values cannot be encoded."""

    advice = "Register a schema for this subject, or give one that is to be registered"


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference from one schema to another: the name in the referring schema, and where the other is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema: its id, its kind (``AVRO``, ``JSON``, ``PROTOBUF``), its text, and its references."""

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()


@dataclass
class SchemaRegistry:
    """A schema registry client with a cache of answers.

    Args:
        url: the address, ``http://host:8081``; several are separated by commas and tried in turn.
        user, password: for basic authentication.
        token: for bearer authentication.
        timeout_ms: the time limit of one request. A request that fails for a temporary reason is retried, at most six
            times per address, with delays of 0.1 seconds, doubling, with 20 % jitter. A busy registry (429, 503) may
            ask for longer delays. No retry starts after ``timeout_ms``.
        world: provides clock and randomness; the real world by default.

    The methods block and are thread-safe; `close` from another thread ends a delay. Pickling omits the cache and the
    world.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    timeout_ms: float = 10_000
    world: World | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if "@" in self.url:
            raise ConfigurationError(
                "schema registry: the address must not hold credentials: pass them as user and password"
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigurationError(
                "schema registry: the token has characters that no HTTP header may have, such as the end of a line"
            )
        self._urls = [url.strip().rstrip("/") for url in self.url.split(",") if url.strip()]
        if not self._urls or not all(url.startswith(("http://", "https://")) for url in self._urls):
            raise ConfigurationError(f"schema registry {self.url!r}: the address must look like http://host:8081")
        self._begin()

    def _begin(self) -> None:
        self._known: dict[tuple[str, str], Any] = {}
        self._closed = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        left_out = {"world": None, "_known": None, "_closed": None}
        return {**self.__dict__, **left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def close(self) -> None:
        """Refuse further requests: a call that waits between retries raises `ClosedError` at once, others at their
        next request."""
        self._closed.set()

    def by_id(self, number: int, *, form: str = "") -> RegisteredSchema:
        """Return the schema with an id; ``form="serialized"`` returns Protobuf descriptors instead of the text.

        Raises:
            UnknownSchemaError: the registry has no such schema; a later call asks again.
            SchemaRegistryError: the registry does not answer or refuses the request.
            ClosedError: `close` was called.
        """
        answer = self._ask(f"/schemas/ids/{number}", form)
        return _schema(answer, number)

    def latest(self, subject: str, *, form: str = "") -> RegisteredSchema:
        """Return the newest schema of a subject; later calls return the same one.

        Raises:
            UnknownSchemaError: the registry has no such subject, or the subject has no schema.
            SchemaRegistryError: the registry does not answer or refuses the request.
            ClosedError: `close` was called.
        """
        return self.version(subject, "latest", form=form)

    def version(self, subject: str, version: int | str, *, form: str = "") -> RegisteredSchema:
        """Return one version of a subject. Raises like `latest`."""
        answer = self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}", form)
        return _schema(answer, answer.get("id", -1))

    def register(self, subject: str, text: str, *, kind: str = "AVRO") -> RegisteredSchema:
        """Register a schema under a subject, unless it is registered already, and return it with its id.

        Raises:
            SchemaRegistryError: the registry does not answer, or refuses the schema, such as an incompatible one.
            ClosedError: `close` was called.
        """
        document = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
        answer = self._fetch(path, _checked_id, json.dumps(document).encode())
        return RegisteredSchema(answer["id"], kind, text)

    def _ask(self, path: str, form: str) -> Any:
        known = self._known.get((path, form))
        if known is None:
            known = self._known[path, form] = self._fetch(path + (f"?format={form}" if form else ""), _checked)
        return known

    def _fetch(self, path: str, check: Callable[[Any], Any], body: bytes | None = None) -> Any:
        world = self.world if self.world is not None else RealWorld()
        until_ms = world.wall_ms() + self.timeout_ms
        failures: list[str] = []
        for tries in range(1, _TRIES + 1):
            asked_for = 0.0  # the longest Retry-After, in seconds
            for url in self._urls:
                if self._closed.is_set():
                    raise ClosedError(f"schema registry: the client was closed before {path} was answered")
                try:
                    request = self._request(url + path, body)
                    with urllib.request.urlopen(request, timeout=self.timeout_ms / 1000) as answer:
                        return check(_document(answer.read()))
                except urllib.error.HTTPError as error:
                    said = f"{url}{path}: {error.code} {_said(error)}"
                    if error.code == _NOT_FOUND:
                        raise UnknownSchemaError(said) from None
                    if error.code < 500 and error.code != 429:
                        raise SchemaRegistryError(said) from None
                    failures.append(said)
                    asked_for = max(asked_for, _retry_after(error))
                except (OSError, ValueError, http.client.HTTPException) as error:
                    why = error.reason if isinstance(error, urllib.error.URLError) else error
                    failures.append(f"{url}{path}: {getattr(why, 'strerror', None) or why or type(error).__name__}")
            pause = max(_BACKOFF.delay(tries, world.random.random()), asked_for)
            if tries == _TRIES or world.wall_ms() + pause * 1000 >= until_ms:
                break
            self._pause(pause)
        raise SchemaRegistryError("; ".join(dict.fromkeys(failures)))

    def _pause(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def _request(self, address: str, body: bytes | None) -> urllib.request.Request:
        """Build a request with credentials that no local variable of the failing frame holds: Spark can show those."""
        headers = {"Accept": _ACCEPT}
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        request = urllib.request.Request(address, data=body, headers=headers)
        for name, value in self._credentials().items():
            request.add_unredirected_header(name, value)  # a redirect may lead to another server
        return request

    def _credentials(self) -> dict[str, str]:
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is not None:
            secret = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
            return {"Authorization": f"Basic {secret}"}
        return {}


class Enveloped(NamedTuple):
    """The values of one schema: its id, their positions in the column, and their payloads."""

    schema_id: int
    positions: list[int]
    payloads: pa.Array


def envelope(schema_id: int) -> bytes:
    """Return the bytes before a payload."""
    return _MAGIC + schema_id.to_bytes(4, "big")


def schema_id_in(data: bytes) -> int:
    """Return the schema id in the envelope of a value. The first `ENVELOPE_BYTES` of the value are enough.

    Raises:
        DecodeError: the bytes have no envelope.
    """
    head = data[:ENVELOPE_BYTES]
    if len(head) < ENVELOPE_BYTES or head[:1] != _MAGIC:
        raise DecodeError(f"it does not begin with a zero byte and a schema id, but with {head.hex(' ') or 'nothing'}")
    return int.from_bytes(head[1:], "big")


def opened(column: pa.Array) -> tuple[list[Enveloped], dict[int, str]]:
    """Remove the envelopes and group the values by schema; returns the errors of other values by position."""
    import pyarrow as pa
    import pyarrow.compute as pc

    heads = pc.binary_slice(column, 0, ENVELOPE_BYTES).dictionary_encode()
    found: list[Enveloped] = []
    errors: dict[int, str] = {}
    for number, head in enumerate(heads.dictionary.to_pylist()):
        positions = pc.indices_nonzero(pc.equal(heads.indices, number)).to_pylist()
        try:
            schema_id = schema_id_in(head)
        except DecodeError as error:
            errors.update(dict.fromkeys(positions, str(error)))
        else:
            theirs = column if len(positions) == len(column) else column.take(pa.array(positions, pa.int64()))
            payloads = pc.binary_slice(theirs, ENVELOPE_BYTES, _END)
            found.append(Enveloped(schema_id, positions, payloads))
    return found, errors


def _schema(answer: Mapping[str, Any], number: int) -> RegisteredSchema:
    return RegisteredSchema(
        number, answer.get("schemaType", "AVRO"), answer["schema"], tuple(_references(answer.get("references") or ()))
    )


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None


def _checked(answer: Any) -> Any:
    """Check that an answer is a schema: proxies and portals may answer with anything."""
    schema = answer.get("schema") if isinstance(answer, dict) else None
    references = (answer.get("references") or []) if isinstance(answer, dict) else []
    named = isinstance(references, list) and all(
        isinstance(each, dict) and {"name", "subject", "version"} <= each.keys() for each in references
    )
    if not isinstance(schema, str) or not named:
        raise ValueError("the answer is not a schema")
    return answer


def _checked_id(answer: Any) -> Any:
    if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
        raise ValueError("the answer is not the id of a schema")
    return answer


def _references(answers: Any) -> Iterator[Reference]:
    return (Reference(each["name"], each["subject"], each["version"]) for each in answers)


def _retry_after(error: urllib.error.HTTPError) -> float:
    """Return the seconds of the Retry-After header; 0 for a date or an invalid value."""
    text = str(error.headers.get("Retry-After", "")).strip()
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)
