"""Observation of a streaming query: commits of its offsets to a group, its lag, and waiting for its end."""
