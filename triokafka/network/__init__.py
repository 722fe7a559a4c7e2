"""Connections to brokers: one connection with its framing, and the client over many of them with its cluster metadata.

Used by producer, consumer and admin client, and between brokers. Protocol error codes inside responses are the caller's
business; connections, versions, metadata, back-off, throttling and timeouts are handled here.
"""
