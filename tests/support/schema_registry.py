"""A schema registry over HTTP on loopback, with the part of Confluent's protocol that readers use."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class StubRegistry:
    """The contents of the registry, and the requests received."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    authorization: list[str | None] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    """Status codes of the next responses."""
    redirect_to: str = ""
    """Another registry, to which every request is redirected."""
    body: bytes | None = None
    """A response that replaces every other one."""
    missing_bytes: int = 0
    """The number of bytes that are missing at the end of every response."""
    retry_after: list[str] = field(default_factory=list)
    """The headers of the next error responses."""
    on_answer: Callable[[], None] = lambda: None
    """Called before every response."""

    def register(
        self,
        subject: str,
        text: str,
        kind: str = "AVRO",
        references: tuple[dict[str, Any], ...] = (),
        serialized: str = "",
    ) -> int:
        """Add a version to a subject; return the schema's id."""
        number = len(self.schemas) + 1
        self.schemas[number] = {
            "schemaType": kind, "schema": text, "references": list(references), "serialized": serialized
        }  # fmt: skip
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body for a GET."""
        self.asked.append(path)
        if self.failures:
            return self.failures.pop(0), {"error_code": 50001, "message": "not now"}
        if self.body is not None:
            return 200, {}
        parts = urlsplit(path)
        names = [unquote(name) for name in parts.path.strip("/").split("/")]
        number = 0
        if names[:2] == ["schemas", "ids"]:
            number = int(names[2])
        elif names[0] == "subjects" and names[1] in self.subjects:
            versions = self.subjects[names[1]]
            number = versions[-1 if names[3] == "latest" else int(names[3]) - 1]
        if number not in self.schemas:
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        found = dict(self.schemas[number])
        serialized = found.pop("serialized")
        if parse_qs(parts.query).get("format") == ["serialized"]:
            found["schema"] = serialized
        if found["schemaType"] == "AVRO":
            del found["schemaType"]  # registries leave out this field
        return 200, {**found, "id": number}


@contextmanager
def schema_registry() -> Iterator[StubRegistry]:
    """Run a registry for the length of the block."""
    stub = StubRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.authorization.append(self.headers.get("Authorization"))
            stub.on_answer()
            status, body = stub.answer(self.path) if not stub.redirect_to else (302, {})
            data = json.dumps(body).encode() if stub.body is None else stub.body
            self.send_response(status)
            if status >= 400 and stub.retry_after:
                self.send_header("Retry-After", stub.retry_after.pop(0))
            if stub.redirect_to:
                self.send_header("Location", stub.redirect_to + self.path)
            self.send_header("Content-Length", str(len(data) + stub.missing_bytes))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            """Register a schema, or return the id of a registered one."""
            subject = unquote(self.path.split("/")[2])
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = [n for n in stub.subjects.get(subject, ()) if stub.schemas[n]["schema"] == document["schema"]]
            kind = document.get("schemaType", "AVRO")
            number = known[0] if known else stub.register(subject, document["schema"], kind)
            data = json.dumps({"id": number}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
