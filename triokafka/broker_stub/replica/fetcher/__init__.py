"""Follower fetchers: replicating partitions from their leaders.

`fetcher_state` decides what is fetched, `fetched_data` what a response means for a partition, both without waiting.
`fetcher_task` carries it out over one connection, and `fetcher_manager` has the tasks of a broker.
"""
