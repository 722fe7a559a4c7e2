"""Incremental fetch sessions (KIP-227), both ends.

`fetch_session_handler` is the fetching end: consumers and followers. `fetch_session_cache` is the broker's end, with a
`fetch_session` for each client and a `fetch_context` for each request.
"""
