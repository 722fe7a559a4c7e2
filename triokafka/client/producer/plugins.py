"""A producer's plug-ins: serializers, interceptors and the partitioner."""

from __future__ import annotations

from dataclasses import replace

from triokafka.client.config import ProducerOptions
from triokafka.client.plugins import Plugins
from triokafka.client.producer.interceptors import ProducerInterceptor
from triokafka.client.producer.partitioner import Partitioner
from triokafka.client.serializers import Serializer


def install_plugins(options: ProducerOptions, client_id: str) -> tuple[ProducerOptions, Plugins]:
    """Return the options with all plug-ins created and configured. On `ConfigurationError` all of them are closed."""
    plugins = Plugins(options, client_id)
    try:
        interceptors = tuple(
            plugins.configured("interceptors", given, ProducerInterceptor) for given in options.interceptors
        )
        serializers = plugins.serializers(options, "serializer", Serializer)
        partitioner = options.partitioner
        if partitioner is not None:
            partitioner = plugins.configured("partitioner", partitioner, Partitioner)
    except BaseException:
        plugins.close()
        raise
    plugins.warn_of_unused()
    return replace(options, **serializers, interceptors=interceptors, partitioner=partitioner), plugins
