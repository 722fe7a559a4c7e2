"""A web page for a cluster: topics and their messages, groups with lag and rebalances, brokers, and what else there is.

It reads through the public client, so it works with any Kafka. `console_app` makes the web application,
``triokafka console`` runs it. Needs the extra ``console``.
"""

from triokafka.console.app import ConsoleOptions, console_app

__all__ = ["ConsoleOptions", "console_app"]
