"""Kafka's wire protocol: messages declared once, codecs generated from the declarations, frames. No I/O.

Start at ``api/`` to read what a message looks like, at ``message.py`` for what a message object can do, and at
``frames.py`` for what goes over a connection.
"""
