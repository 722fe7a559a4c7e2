"""Three node processes with SASL_SSL on every listener, whose certificates and logins can be replaced while they run.

Clients and brokers log in by SCRAM, with users in the metadata log; the quorum's connections by PLAIN, because they
must work before the metadata log can be read.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import trustme

from tests.support.broker_process import BrokerProcess
from triokafka.cli.cluster.free_ports import free_ports

NODES: Final = 3
MECHANISM: Final = "SCRAM-SHA-512"
_CLUSTER_ID: Final = "c2VjdXJlZC1jbHVzdGVyLg"
_SCRAM: Final = "ScramLoginModule required"
_PLAIN: Final = "PlainLoginModule required"
_LISTENERS: Final = ("CLIENT", "INTERNAL", "CONTROLLER")


class SecuredCluster:
    """Three nodes: call `format`, then `start` every node.

    ``trust`` is the file with the authorities that every node trusts.
    """

    def __init__(self, directory: Path, users: dict[str, str], broker_user: str) -> None:
        self._directory = directory
        self._users = dict(users)
        self._broker_user = broker_user
        self._ports = free_ports(NODES * len(_LISTENERS))
        self.trust = directory / "trusted.pem"
        self._authority = trustme.CA()
        self.trust_only([self._authority])
        for number in range(1, NODES + 1):
            self._folder(number).mkdir()
            self.replace_certificate(number, self._authority)
            self.write_config(number, broker_user)
        self.nodes = [self._node(number) for number in range(1, NODES + 1)]

    @property
    def authority(self) -> trustme.CA:
        """The first authority."""
        return self._authority

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the clients' listeners."""
        return ",".join(f"127.0.0.1:{self._port(number, 'CLIENT')}" for number in range(1, NODES + 1))

    def client_options(self, user: str, password: Any) -> dict[str, Any]:
        """Return the options of a client."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.trust),
            "sasl_mechanism": MECHANISM,
            "sasl_username": user,
            "sasl_password": password,
        }

    def trust_only(self, authorities: list[trustme.CA]) -> None:
        """Replace the trusted authorities, of nodes and clients, from their next connection on."""
        _replace(self.trust, b"".join(one.cert_pem.bytes() for one in authorities))

    def replace_certificate(self, number: int, authority: trustme.CA) -> None:
        """Replace a node's certificate from its next connection on."""
        certificate = authority.issue_cert("127.0.0.1")
        chain = b"".join(one.bytes() for one in certificate.cert_chain_pems)
        _replace(self._store(number), certificate.private_key_pem.bytes() + chain)

    def write_config(self, number: int, broker_user: str) -> None:
        """Write the properties of a node, which logs in to other brokers as ``broker_user`` from its next start on."""
        addresses = {name: f"127.0.0.1:{self._port(number, name)}" for name in _LISTENERS}
        password = self._users[broker_user]
        voters = ",".join(f"{one}@127.0.0.1:{self._port(one, 'CONTROLLER')}" for one in range(1, NODES + 1))
        properties = {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "advertised.listeners": ",".join(f"{name}://{addresses[name]}" for name in ("CLIENT", "INTERNAL")),
            "listener.security.protocol.map": ",".join(f"{name}:SASL_SSL" for name in _LISTENERS),
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "listener.name.internal.scram-sha-512.sasl.jaas.config": (
                f'{_SCRAM} username="{broker_user}" password="{password}";'
            ),
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": (
                f'{_PLAIN} username="quorum" password="of-the-quorum" user_quorum="of-the-quorum";'
            ),
            "ssl.keystore.location": self._store(number),
            "ssl.truststore.location": self.trust,
            "log.dirs": self._folder(number) / "data",
            "default.replication.factor": NODES,
            "min.insync.replicas": NODES - 1,
            "offsets.topic.replication.factor": NODES,
            "group.initial.rebalance.delay.ms": 0,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{name}" for name in ("admin", "quorum", *self._users)),
        }
        self._config(number).write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def format(self) -> None:
        """Format the nodes' directories, with the users in the metadata log."""
        for number in range(1, NODES + 1):
            command = [sys.executable, "-m", "triokafka", "storage", "format", "-t", _CLUSTER_ID]
            command += ["-c", str(self._config(number))]
            for name, password in self._users.items():
                command += ["--add-scram", f"{MECHANISM}=[name={name},password={password}]"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done

    def log_of(self, number: int) -> str:
        """Return the log of a node's last process."""
        return (self._folder(number) / "log").read_text()

    def close(self) -> None:
        """End all processes."""
        for node in self.nodes:
            node.close()

    def _node(self, number: int) -> BrokerProcess:
        return BrokerProcess(None, config=self._config(number), logs_to=self._folder(number) / "log")

    def _folder(self, number: int) -> Path:
        return self._directory / f"node-{number}"

    def _config(self, number: int) -> Path:
        return self._folder(number) / "server.properties"

    def _store(self, number: int) -> Path:
        return self._folder(number) / "node.pem"

    def _port(self, number: int, listener: str) -> int:
        return self._ports[(number - 1) * len(_LISTENERS) + _LISTENERS.index(listener)]


def _replace(path: Path, content: bytes) -> None:
    """Replace a file so that no reader ever sees a part of it."""
    written = path.with_suffix(".new")
    written.write_bytes(content)
    written.rename(path)
