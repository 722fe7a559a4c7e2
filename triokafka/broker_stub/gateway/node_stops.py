"""The error of requests to the active controller that a stopping node gives up.

It has a module of its own so that a broker that is its own controller imports no network client at its start.
"""

from __future__ import annotations

from triokafka import errors


class NodeStopsError(errors.NotControllerError):
    """This node stops: no later attempt of it reaches the controller."""
