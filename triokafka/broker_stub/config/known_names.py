"""Names of Kafka's options that this broker accepts without effect, so that any ``server.properties`` file loads."""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.config.security_names import DYNAMIC_STORE_NAMES, SECURITY_NAMES

_OUTSIDE_OF_THE_CONFIGURATION: Final = {
    "java.security.auth.login.config",
    "org.apache.kafka.sasl.oauthbearer.allowed.files",
    "org.apache.kafka.sasl.oauthbearer.allowed.urls",
    "sasl.oauthbearer.header.urlencode",
    "ssl.crl.location",
}
"""Names that a server.properties of Kafka does not have: properties of the JVM, of clients, and of this broker."""
UNUSED_NAMES: Final = frozenset(
    {
        # Groups and transactions
        "add.partitions.to.txn.retry.backoff.ms", "group.coordinator.append.linger.ms",
        "group.coordinator.background.threads", "group.coordinator.cached.buffer.max.bytes",
        "group.coordinator.rebalance.protocols", "group.coordinator.threads", "transaction.two.phase.commit.enable",
        # Share groups (KIP-932)
        "group.share.assignment.interval.ms", "group.share.assignors", "group.share.delivery.count.limit",
        "group.share.heartbeat.interval.ms", "group.share.initialize.retry.interval.ms",
        "group.share.max.assignment.interval.ms", "group.share.max.delivery.count.limit",
        "group.share.max.heartbeat.interval.ms", "group.share.max.partition.max.record.locks",
        "group.share.max.record.lock.duration.ms", "group.share.max.session.timeout.ms",
        "group.share.max.share.sessions", "group.share.max.size", "group.share.min.assignment.interval.ms",
        "group.share.min.delivery.count.limit", "group.share.min.heartbeat.interval.ms",
        "group.share.min.partition.max.record.locks", "group.share.min.record.lock.duration.ms",
        "group.share.min.session.timeout.ms", "group.share.partition.max.record.locks",
        "group.share.persister.class.name", "group.share.record.lock.duration.ms", "group.share.session.timeout.ms",
        "share.coordinator.append.linger.ms", "share.coordinator.cached.buffer.max.bytes",
        "share.coordinator.cold.partition.snapshot.interval.ms", "share.coordinator.load.buffer.size",
        "share.coordinator.snapshot.update.records.per.snapshot", "share.coordinator.state.topic.compression.codec",
        "share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.prune.interval.ms", "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.segment.bytes", "share.coordinator.threads",
        "share.coordinator.write.timeout.ms", "share.fetch.purgatory.purge.interval.requests",
        # Streams groups (KIP-1071)
        "group.streams.assignment.interval.ms", "group.streams.heartbeat.interval.ms",
        "group.streams.initial.rebalance.delay.ms", "group.streams.max.assignment.interval.ms",
        "group.streams.max.heartbeat.interval.ms", "group.streams.max.session.timeout.ms", "group.streams.max.size",
        "group.streams.max.standby.replicas", "group.streams.min.assignment.interval.ms",
        "group.streams.min.heartbeat.interval.ms", "group.streams.min.session.timeout.ms",
        "group.streams.num.standby.replicas", "group.streams.session.timeout.ms",
        # Tiered storage (KIP-405)
        "follower.fetch.last.tiered.offset.enable", "log.local.retention.bytes", "log.local.retention.ms",
        "remote.fetch.max.wait.ms", "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes", "remote.log.index.file.cache.ttl.ms",
        "remote.log.manager.copier.thread.pool.size", "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.copy.quota.window.num", "remote.log.manager.copy.quota.window.size.seconds",
        "remote.log.manager.expiration.thread.pool.size", "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.fetch.quota.window.num", "remote.log.manager.fetch.quota.window.size.seconds",
        "remote.log.manager.follower.thread.pool.size", "remote.log.manager.task.interval.ms",
        "remote.log.manager.task.retry.backoff.max.ms", "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter", "remote.log.manager.thread.pool.size",
        "remote.log.metadata.custom.metadata.max.bytes", "remote.log.metadata.manager.class.name",
        "remote.log.metadata.manager.class.path", "remote.log.metadata.manager.impl.prefix",
        "remote.log.metadata.manager.listener.name", "remote.log.reader.max.pending.tasks", "remote.log.reader.threads",
        "remote.log.storage.manager.class.name", "remote.log.storage.manager.class.path",
        "remote.log.storage.manager.impl.prefix", "remote.log.storage.system.enable",
        # TLS and SASL
        "principal.builder.class", "sasl.client.callback.handler.class", "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.ticket.renew.jitter", "sasl.login.class",
        "sasl.oauthbearer.jwt.validator.class", "security.providers", "ssl.engine.factory.class",
        "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        # Metrics
        "controller.performance.always.log.threshold.ms", "controller.performance.sample.period.ms",
        "kafka.metrics.polling.interval.secs", "kafka.metrics.reporters", "metric.reporters", "metrics.num.samples",
        "metrics.recording.level", "metrics.sample.window.ms",
        # Other
        "alter.log.dirs.replication.quota.window.num", "alter.log.dirs.replication.quota.window.size.seconds",
        "client.quota.callback.class", "config.providers", "controlled.shutdown.enable",
        "internal.metadata.delete.delay.millis", "internal.metadata.log.segment.bytes",
        "internal.metadata.max.batch.size.in.bytes", "replica.socket.receive.buffer.bytes",
        "server.max.startup.time.ms", "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
        "unstable.api.versions.enable", "unstable.feature.versions.enable",
    } | (SECURITY_NAMES - _OUTSIDE_OF_THE_CONFIGURATION)
)  # fmt: skip
UNUSED_DYNAMIC_NAMES: Final = frozenset(
    {
        # Groups
        "group.coordinator.cached.buffer.max.bytes", "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms", "share.coordinator.cached.buffer.max.bytes",
        # Tiered storage
        "follower.fetch.last.tiered.offset.enable", "log.local.retention.bytes", "log.local.retention.ms",
        "remote.fetch.max.wait.ms", "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes", "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second", "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second", "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        # TLS and SASL
        "principal.builder.class", "sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.principal.to.local.rules", "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.mechanism.inter.broker.protocol",
        "ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class", "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider",
        "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
        # Other
        "config.providers", "metric.reporters",
    } | DYNAMIC_STORE_NAMES
)  # fmt: skip
"""The unused options that are dynamic in Kafka. This broker stores changes of them, without effect."""
PER_BROKER_NAMES: Final = frozenset(
    {"principal.builder.class", *(name for name in UNUSED_DYNAMIC_NAMES if name.startswith(("sasl.", "ssl.")))}
)
"""The unused dynamic options that can be set for a single broker only, not for the cluster."""
REMOVED_NAMES: Final = frozenset(
    {
        "auto.include.jmx.reporter", "broker.id.generation.enable", "control.plane.listener.name",
        "delegation.token.master.key", "inter.broker.protocol.version", "log.message.downconversion.enable",
        "log.message.format.version", "log.message.timestamp.difference.max.ms", "offsets.commit.required.acks",
        "password.encoder.cipher.algorithm", "password.encoder.iterations", "password.encoder.key.length",
        "password.encoder.keyfactory.algorithm", "password.encoder.old.secret", "password.encoder.secret",
        "quota.consumer.default", "quota.producer.default", "reserved.broker.max.id",
    }
)  # fmt: skip
"""Options that Kafka removed in 4.0 and ignores since, like every option that begins with ``zookeeper.``."""
UNUSED_PREFIXES: Final = ("listener.name.", "config.providers.", "rsm.config.", "rlmm.config.")
"""Prefixes of unused options of listeners, configuration providers and tiered storage."""
SECRET_NAMES: Final = frozenset(
    {
        "delegation.token.secret.key", "sasl.jaas.config", "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.client.credentials.client.secret", "ssl.key.password", "ssl.keystore.certificate.chain",
        "ssl.keystore.key", "ssl.keystore.password", "ssl.truststore.certificates", "ssl.truststore.password",
    }
)  # fmt: skip
"""Options whose value is a secret."""
