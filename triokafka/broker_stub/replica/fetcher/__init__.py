"""Follower fetchers: replicating partitions from their leaders.

`fetcher_state` chooses the partitions to fetch, `follower_log` applies a response to a partition, both without waiting.
`fetcher_task` carries it out over one connection, and `fetcher_manager` has the tasks of a broker.
"""
