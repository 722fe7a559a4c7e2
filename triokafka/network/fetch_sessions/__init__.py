"""Incremental fetch sessions (KIP-227), both ends.

`fetch_session_handler` is the fetching end: consumers and followers. `fetch_session_cache` is the broker's end.
"""
