"""Committed offsets of groups: commit, fetch, delete and expire. No I/O."""
