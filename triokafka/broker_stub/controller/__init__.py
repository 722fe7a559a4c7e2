"""The active controller: the decisions about the cluster, and the one queue that orders its changes.

`Controller` is the entry. The decision modules (``topic_control``, ``configuration_control``, …) are pure
functions of a metadata image.
"""

from triokafka.broker_stub.controller.controller import Controller

__all__ = ["Controller"]
