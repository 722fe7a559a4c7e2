"""Connections to brokers: one connection with its framing, and the client over many of them with its cluster metadata.

Used by producer, consumer and admin client, and between brokers. It handles connections, versions, metadata, back-off,
throttling and timeouts. Callers handle the protocol error codes inside responses.
"""
