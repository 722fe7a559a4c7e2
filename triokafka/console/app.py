"""The web application of the console: the page's files, and the JSON that it shows.

Answers go to the page only: requests with a foreign Host or Origin are refused, changes need the page's token, and a
content security policy keeps the page from loading anything from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from hmac import compare_digest
from importlib.resources import files
from typing import Any, Final

import trio
from quart import Response, request
from quart_trio import QuartTrio

from triokafka import errors
from triokafka.console.changes import InvalidChangeError, ReadOnlyError, change_named
from triokafka.console.cluster_view import ClusterView
from triokafka.console.fault_switches import CALLS, FaultSwitches
from triokafka.console.limits import ConsoleLimits
from triokafka.console.messages import Search, search, tail
from triokafka.console.scraped_metrics import MetricsSource, ScrapedMetrics
from triokafka.console.sessions import Session, Sessions, check_passwords_are_checked, note
from triokafka.security.java_names import with_hidden_secrets
from triokafka.world import World

COOKIE: Final = "triokafka_session"
_MOST_BODY: Final = 1 << 20
_FILES: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "requests.js": "text/javascript",
    "shown_page.js": "text/javascript",
    "views.js": "text/javascript",
    "drawing.js": "text/javascript",
    "charts.js": "text/javascript",
    "faults.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class ConsoleOptions:
    """Options of the console. ``hosts`` are the values of the Host header that are accepted.

    Raises:
        ConfigurationError: ``needs_login`` is set, and the cluster would check no password.
    """

    client: Mapping[str, Any]
    hosts: Set[str]
    allow_changes: bool = False
    needs_login: bool = False
    registry: str | None = None
    """URL of a schema registry, for Avro, Protobuf and JSON Schema."""
    secure_cookie: bool = False
    """Whether the page is reached by https only."""
    limits: ConsoleLimits = field(default_factory=ConsoleLimits)
    metrics: Mapping[str, MetricsSource] = field(default_factory=dict)
    """Metrics of brokers, by a name for people."""
    faults: FaultSwitches | None = None
    """Fault switches of a test cluster; the page shows them to all of its users."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", with_hidden_secrets(self.client))
        if self.needs_login:
            check_passwords_are_checked(self.client)


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def console_app(options: ConsoleOptions, world: World, nursery: trio.Nursery) -> QuartTrio:
    """Return the application. Its clients run in ``nursery``, and end with it."""
    app = QuartTrio(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = _MOST_BODY
    limits = options.limits
    sessions = Sessions(options.client, world, nursery, limits, needs_login=options.needs_login)
    measured = ScrapedMetrics(options.metrics, world, limits)
    nursery.start_soon(measured.run)
    decoder = None
    if options.registry is not None:
        from triokafka.formats.registry import SchemaRegistry
        from triokafka.formats.value_codecs import ValueDecoder

        decoder = ValueDecoder(SchemaRegistry(options.registry))
    token = world.random_bytes(16).hex()
    tails = trio.CapacityLimiter(limits.max_tails)
    searches = trio.CapacityLimiter(limits.max_searches)

    app.before_serving(sessions.warm)

    @app.before_request
    async def check() -> None:
        if request.host not in options.hosts:
            raise _Refused(403, f"this console does not serve the host {request.host!r}")
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] not in options.hosts:
            raise _Refused(403, "requests from other sites are refused")
        given = request.headers.get("X-Console-Token", "").encode()
        if request.method == "POST" and not compare_digest(given, token.encode()):
            raise _Refused(403, "the page is out of date: load it again")

    @app.after_request
    async def protect(response: Response) -> Response:
        response.headers.update(_HEADERS)
        return response

    @app.errorhandler(_Refused)
    async def refuse(error: _Refused) -> Response:
        return _json({"error": "Refused", "message": str(error)}, error.status)

    # ---------------------------------------------------------------- files

    @app.get("/")
    async def page() -> Response:
        text = (files("triokafka.console") / "static" / "index.html").read_text("utf-8")
        facts = {"token": token, "changes": options.allow_changes, "login": options.needs_login}
        facts |= {"faults": options.faults is not None, "sample_ms": limits.sample_interval_ms}
        shown = json.dumps(facts).replace("&", "&amp;").replace('"', "&quot;")
        return Response(text.replace("CONSOLE_FACTS", shown), content_type="text/html; charset=utf-8")

    @app.get("/static/<name>")
    async def static_file(name: str) -> Response:
        if name not in _FILES:
            raise _Refused(404, f"there is no file {name!r}")
        data = (files("triokafka.console") / "static" / name).read_bytes()
        return Response(data, content_type=f"{_FILES[name]}; charset=utf-8")

    # ---------------------------------------------------------------- sessions

    async def session() -> Session:
        found = await sessions.find(request.cookies.get(COOKIE))
        if found is None:
            raise _Refused(401, "log in")
        return found

    async def answer(ask: Callable[[ClusterView], Awaitable[Any]]) -> Response:
        """Return the view's answer, or its error."""
        try:
            return _json(await ask((await session()).view))
        except (errors.KafkaError, ExceptionGroup, ValueError) as error:
            return _failure(error)

    @app.post("/api/login")
    async def log_in() -> Response:
        given = await _body()
        user, password = given.get("user"), given.get("password")
        if not options.needs_login or not isinstance(user, str) or not isinstance(password, str):
            raise _Refused(400, "user and password are missing")
        try:
            made = await sessions.log_in(user, password, request.remote_addr or "")
        except (errors.KafkaError, ExceptionGroup) as error:
            return _failure(error)
        sessions.log_out(request.cookies.get(COOKIE))
        response = _json({"user": user})
        response.set_cookie(COOKIE, made, httponly=True, samesite="Strict", secure=options.secure_cookie)
        return response

    @app.post("/api/logout")
    async def log_out() -> Response:
        sessions.log_out(request.cookies.get(COOKIE))
        response = _json({})
        response.delete_cookie(COOKIE)
        return response

    # ---------------------------------------------------------------- reading

    @app.get("/api/overview")
    async def overview() -> Response:
        return await answer(lambda view: view.overview())

    @app.get("/api/brokers")
    async def brokers() -> Response:
        return await answer(lambda view: view.brokers())

    @app.get("/api/brokers/<int:node>/configs")
    async def broker_configs(node: int) -> Response:
        return await answer(lambda view: view.broker_configs(node))

    @app.get("/api/topics")
    async def topics() -> Response:
        text, number = request.args.get("text", ""), _number("page", 8)
        internal, problems = "internal" in request.args, "problems" in request.args
        return await answer(lambda view: view.topics(text, number, internal, problems))

    @app.get("/api/topics/<name>")
    async def topic(name: str) -> Response:
        note((await session()).seen_topics, name, world.now())
        return await answer(lambda view: view.topic(name))

    @app.get("/api/topics/<name>/producers")
    async def producers(name: str) -> Response:
        return await answer(lambda view: view.producers(name))

    @app.get("/api/topics/<name>/messages")
    async def messages(name: str) -> Response:
        async def find(view: ClusterView) -> Any:
            try:
                searches.acquire_on_behalf_of_nowait(find)
            except trio.WouldBlock:
                raise _Refused(429, f"{limits.max_searches} searches run already: try again") from None
            try:
                return await search(view.options, view.admin, _search(name), decoder, limits)
            finally:
                searches.release_on_behalf_of(find)

        return await answer(find)

    @app.get("/api/topics/<name>/tail")
    async def live(name: str) -> Response:
        own = await session()
        view = own.view
        try:
            wanted = _search(name)
            await view.admin.describe_topics([name])
        except (errors.KafkaError, ValueError) as error:
            return _failure(error)

        async def events() -> AsyncIterator[bytes]:
            try:
                tails.acquire_on_behalf_of_nowait(wanted)
            except trio.WouldBlock:
                yield _event({"error": "Refused", "message": f"{limits.max_tails} topics are watched already"})
                return
            try:
                async with aclosing(tail(view.options, view.admin, wanted, decoder)) as found:
                    async for one in found:
                        if own.scope.cancel_called:
                            yield _event({"error": "Refused", "message": "you have logged out"})
                            return
                        own.used_at = world.now()
                        yield _event(one)
            except (errors.KafkaError, ExceptionGroup) as error:
                yield _event(_problem(error))
            finally:
                tails.release_on_behalf_of(wanted)

        response = Response(events(), content_type="text/event-stream")
        response.timeout = None
        return response

    @app.get("/api/groups")
    async def groups() -> Response:
        text, number = request.args.get("text", ""), _number("page", 8)
        return await answer(lambda view: view.groups(text, number))

    @app.get("/api/group")
    async def group() -> Response:
        name = request.args.get("id", "")
        note((await session()).seen, name, world.now())
        return await answer(lambda view: view.group(name))

    @app.get("/api/metrics")
    async def metrics() -> Response:
        since = _number("since", 15)

        async def charts(view: ClusterView) -> Any:
            return {
                "now": world.wall_ms(),
                "window_ms": limits.sample_interval_ms * limits.max_samples,
                "cluster": view.metrics.charts(since),
                "left_out": view.metrics.left_out,
                "brokers": measured.charts(since),
                "sources": measured.sources,
            }

        return await answer(charts)

    @app.get("/api/transactions")
    async def transactions() -> Response:
        return await answer(lambda view: view.transactions())

    @app.get("/api/access")
    async def access() -> Response:
        return await answer(lambda view: view.access())

    # ---------------------------------------------------------------- faults of a test cluster

    def switches() -> FaultSwitches:
        if options.faults is None:
            raise _Refused(404, "this console has no fault switches: start it with --control")
        return options.faults

    @app.get("/api/faults")
    async def faults() -> Response:
        found = switches()
        return await answer(lambda view: found.state())

    @app.post("/api/faults/<name>")
    async def fault(name: str) -> Response:
        found = switches()
        if name not in CALLS:
            raise _Refused(404, f"there is no fault switch {name!r}")
        given = await _body()
        return await answer(lambda view: found.call(name, given))

    # ---------------------------------------------------------------- changing

    @app.post("/api/change/<name>")
    async def change(name: str) -> Response:
        try:
            wanted = change_named(name, allowed=options.allow_changes)
        except ReadOnlyError as error:
            raise _Refused(403, str(error)) from None
        if wanted is None:
            raise _Refused(404, f"there is no change {name!r}")
        given = await _body()

        async def apply(view: ClusterView) -> Any:
            try:
                return await wanted(view, given) or {}
            finally:
                view.forget()

        return await answer(apply)

    return app


def _json(document: Any, status: int = 200) -> Response:
    return Response(_encoded(document), status=status, content_type="application/json")


def _encoded(document: Any) -> bytes:
    # Half of a surrogate pair, which JSON in a message can have, becomes its escape in JSON again.
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _event(document: Any) -> bytes:
    return b"data: " + _encoded(document) + b"\n\n"


def _problem(error: BaseException) -> dict[str, str]:
    error = errors.first_leaf(error)
    return {"error": type(error).__name__, "message": str(error)}


def _failure(error: BaseException) -> Response:
    """Return an error of the cluster or of the request, with the status that fits it."""
    error = errors.first_leaf(error)
    kinds: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...] = (
        (errors.AuthenticationError, 401),
        (errors.AuthorizationError, 403),
        ((errors.UnknownTopicOrPartitionError, errors.GroupIdNotFoundError), 404),
        (errors.KafkaTimeoutError, 504),
        ((InvalidChangeError, ValueError), 400),
    )
    status = next((status for kind, status in kinds if isinstance(error, kind)), 502)
    return _json(_problem(error), status)


async def _body() -> dict[str, Any]:
    try:
        given = json.loads(await request.get_data(as_text=False))
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise _Refused(400, "the body is not a JSON object")
    return given


def _number(name: str, digits: int) -> int:
    """Return a number in the address; 0 without it, and for anything else."""
    text = request.args.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else 0


def _search(topic: str) -> Search:
    """Return the search that the address asks for. Raises `ValueError`."""
    given = request.args
    partition, limit = given.get("partition", ""), given.get("limit", "50")
    if not (partition or "0").isdecimal() or not limit.isdecimal() or len(partition) > 9 or len(limit) > 9:
        raise InvalidChangeError("partition and limit must be numbers")
    return Search(
        topic,
        int(partition) if partition else None,
        given.get("start", "newest"),
        int(limit),
        given.get("key", ""),
        given.get("text", ""),
        given.get("isolation", "read_uncommitted"),
    )
