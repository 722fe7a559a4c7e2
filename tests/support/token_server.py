"""An identity provider for tests, on loopback: a token endpoint and a JWKS endpoint."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import trustme
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
CLIENTS = {"alice": "s3cret", "über alice": "p&ss w=rd"}


class TokenServer:
    """A provider with one signing key at a time. Every attribute may be changed while it runs."""

    def __init__(self) -> None:
        self.key: RSAKey | ECKey = RSAKey.generate_key(2048, {"kid": "first"})
        self.published: list[Any] = [self.key]
        self.lifetime = 3600
        self.requests: list[dict[str, str]] = []
        self.jwks_requests = 0
        self.fails: list[int] = []
        """Statuses with which the next requests fail."""
        self.answer: bytes | None = None
        """The answer of the token endpoint, if not a token."""
        self.assertion_keys: list[Any] = []
        """The keys whose assertions are accepted."""
        self.wait: Callable[[], object] = lambda: None
        self.url = ""

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/jwks"

    def publish(self, kid: str, kind: type[RSAKey] | type[ECKey] = RSAKey) -> None:
        """Replace the signing key, and publish only the new one."""
        self.key = (
            RSAKey.generate_key(2048, {"kid": kid}) if kind is RSAKey else ECKey.generate_key("P-256", {"kid": kid})
        )
        self.published = [self.key]

    def jwks(self) -> bytes:
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.published]}).encode()

    def token(self, **claims: Any) -> str:
        """Return a signed token for alice; a claim of None is left out."""
        now = int(time.time())
        given = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + self.lifetime, **claims}
        algorithm = "RS256" if isinstance(self.key, RSAKey) else "ES256"
        header = {"alg": algorithm, "kid": self.key.kid}
        return jwt.encode(header, {k: v for k, v in given.items() if v is not None}, self.key, [algorithm])

    def grant(self, authorization: str, form: dict[str, str]) -> tuple[int, Any]:
        """Return the status and the JSON of the response to a token request."""
        if "client_assertion" in form or form.get("grant_type", "").endswith(":jwt-bearer"):
            text = form.get("client_assertion") or form["assertion"]
            for key in self.assertion_keys:
                claims = jwt.decode(text, key, algorithms=["RS256", "ES256"]).claims
                return 200, {"access_token": self.token(sub=claims.get("sub", "nobody"), scope=form.get("scope"))}
            return 401, {"error": "invalid_client"}
        user, _, password = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if CLIENTS.get(user) != password:
            return 401, {"error": "invalid_client", "error_description": "no such client"}
        return 200, {"access_token": self.token(sub=user, scope=form.get("scope")), "expires_in": self.lifetime}


@contextmanager
def token_server(certificate: trustme.LeafCert | None = None) -> Iterator[TokenServer]:
    """Run a provider until the block ends, with TLS if it has a certificate."""
    server = TokenServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.jwks_requests += 1
            self._send(*((server.fails.pop(0), b"{}") if server.fails else (200, server.jwks())))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            server.requests.append(form)
            server.wait()
            if server.fails:
                self._send(server.fails.pop(0), b'{"error": "temporarily_unavailable"}')
            elif server.answer is not None:
                self._send(200, server.answer)
            else:
                status, found = server.grant(self.headers.get("Authorization", ""), form)
                self._send(status, json.dumps(found).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("Location", server.token_url)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            http.socket = context.wrap_socket(http.socket, server_side=True)
            server.url = server.url.replace("http:", "https:")
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
