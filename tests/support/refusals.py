"""A `triokafka` command and a Spark read with a client's options under Java's names, for tests of refusals."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from triokafka.cli.app import run

_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Refused(NamedTuple):
    """How a command ended, and in how many seconds."""

    status: int
    out: str
    err: str
    seconds: float


def java_properties(options: dict[str, Any], directory: Path) -> dict[str, str]:
    """Return a client's options under Java's names. A token goes through a file, as other programs pass one."""
    texts = {"security.protocol": options["security_protocol"]}
    if "ssl_cafile" in options:
        texts |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": options["ssl_cafile"]}
    if "sasl_mechanism" in options:
        texts["sasl.mechanism"] = options["sasl_mechanism"]
    if "sasl_oauth_token_provider" in options:
        token = directory / "token"
        token.write_text(options["sasl_oauth_token_provider"]())
        texts["sasl.oauthbearer.token.endpoint.url"] = token.as_uri()
        texts["sasl.oauthbearer.allowed.urls"] = token.as_uri()
    elif "sasl_username" in options:
        login = f'username="{options["sasl_username"]}" password="{options["sasl_password"]}"'
        module = _MODULE if options["sasl_mechanism"] == "PLAIN" else _MODULE.replace("plain.Plain", "scram.Scram")
        texts["sasl.jaas.config"] = f"{module} required {login};"
    return texts


def refused_command(options: dict[str, Any]) -> Refused:
    """Run ``triokafka topics list --command-config`` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        config = directory / "client.properties"
        lines = (f"{name}={value}" for name, value in java_properties(options, directory).items())
        config.write_text("".join(line.replace("\n", "\\n") + "\n" for line in lines))
        given = ("--bootstrap-server", options["bootstrap_servers"], "--command-config", str(config))
        began = time.monotonic()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run(["topics", "list", *given])
        seconds = time.monotonic() - began
    return Refused(status, out.getvalue(), err.getvalue(), seconds)


def check_command(options: dict[str, Any], text: str) -> None:
    """Check that the command fails with one sentence that contains ``text``, and shows no secret."""
    done = refused_command(options)
    assert done.status == 1 and done.out == "", done
    # On a busy machine the command reports after a second that it is still trying.
    lines = [line for line in done.err.splitlines() if "; trying for another" not in line]
    assert len(lines) == 1 and lines[0].startswith("triokafka: "), done
    assert text in done.err and "no broker has responded" not in done.err, done
    assert "Traceback" not in done.err and options.get("sasl_password", "secret") not in done.err


def read_with_spark(options: dict[str, Any]) -> None:
    """Plan a read of a topic as Spark's Python worker does, without a JVM."""
    from triokafka.spark.planning.read_options import ReadOptions
    from triokafka.spark.reading.topic_reader import TopicReader

    with tempfile.TemporaryDirectory() as name:
        texts = {f"kafka.{key}": value for key, value in java_properties(options, Path(name)).items()}
        given = {"kafka.bootstrap.servers": options["bootstrap_servers"], "subscribe": "orders", **texts}
        TopicReader(ReadOptions.parse(given)).partitions()
