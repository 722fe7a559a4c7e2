"""The load and the measurements of ``triokafka perf``, shared with the repository's benchmarks.

`load_run` sends and `read_run` reads; `payloads`, `open_loop` and `quantiles` provide load and statistics, `meter`
measures this process, and `brokers` starts broker processes; `sink` is a broker that only acknowledges.
"""
