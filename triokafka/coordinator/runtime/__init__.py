"""The runtime of a coordinator of any type: load shards, append and replay records, hold answers until the commit.

Nothing here knows what a coordinator coordinates; see `coordinator_type`.
"""
