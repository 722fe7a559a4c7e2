"""A Kerberos realm for a test: MIT's KDC in a process, over a directory, on a free port of the loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support import kerberos_setup
from triokafka.cli.cluster.free_ports import free_ports

REALM: Final = "TRIO.TEST"
_SECONDS_TO_START: Final = 60


def needs_kerberos() -> None:
    """Skip the test if the KDC or the package gssapi is missing, and give the reason that the set-up reported."""
    if missing := kerberos_setup.missing_tools():
        pytest.skip(f"Kerberos: {', '.join(missing)} not found: {kerberos_setup.reason()}")
    reason = f"Kerberos: gssapi cannot be imported: {kerberos_setup.reason()}"
    pytest.importorskip("gssapi", reason=reason, exc_type=ImportError)


class Kdc:
    """A realm. ``config`` is its krb5.conf, which Java reads too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "krb5.conf"
        (self.port,) = free_ports(1)
        self._profile = directory / "kdc.conf"
        self.config.write_text(
            f"[libdefaults]\n  default_realm = {REALM}\n  dns_lookup_kdc = false\n  dns_lookup_realm = false\n"
            "  rdns = false\n  dns_canonicalize_hostname = false\n  udp_preference_limit = 1\n"
            f"[realms]\n  {REALM} = {{\n    kdc = 127.0.0.1:{self.port}\n  }}\n"
        )
        where = kerberos_setup.database_modules()
        modules = "" if where is None else f"[dbmodules]\n  db_module_dir = {where}\n"
        self._profile.write_text(
            f'[kdcdefaults]\n  kdc_listen = ""\n  kdc_tcp_listen = 127.0.0.1:{self.port}\n'
            f"[realms]\n  {REALM} = {{\n    database_name = {directory}/principal\n    acl_file = {directory}/acl\n"
            f"    key_stash_file = {directory}/stash\n    max_life = 1h\n  }}\n"
            f"{modules}"
            f"[logging]\n  kdc = FILE:{directory}/kdc.log\n  default = FILE:{directory}/krb5.log\n"
        )

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make the Kerberos libraries use this realm."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self._profile),
            "KRB5CCNAME": f"FILE:{self.directory}/cache",
            "PATH": kerberos_setup.search_path(),
        }

    @property
    def tool_environment(self) -> dict[str, str]:
        """The whole environment of the KDC and of its tools, which may have libraries of their own."""
        return {**os.environ, **self.environment, **kerberos_setup.tool_environment()}

    def run(self, *command: str, stdin: str = "") -> str:
        """Run one of the tools in this realm."""
        done = subprocess.run(
            command, env=self.tool_environment, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done
        return done.stdout

    def keytab(self, name: str, *principals: str) -> Path:
        """Return a keytab with new principals."""
        path = self.directory / f"{name}.keytab"
        for principal in principals:
            self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self.run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path


@contextmanager
def running_kdc(directory: Path) -> Iterator[Kdc]:
    """Create a realm in ``directory`` and run its KDC; meanwhile this process's environment names the realm."""
    needs_kerberos()
    kdc = Kdc(directory)
    kdc.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    before = {name: os.environ.get(name) for name in kdc.environment}
    process = subprocess.Popen(["krb5kdc", "-n"], env=kdc.tool_environment)
    try:
        # There is no event for the start of another program.
        deadline = time.monotonic() + _SECONDS_TO_START
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", kdc.port)) == 0:
                    break
            assert process.poll() is None and time.monotonic() < deadline, "the KDC did not start"
            time.sleep(0.02)
        os.environ.update(kdc.environment)
        yield kdc
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        process.terminate()
        process.wait(30)
