"""The load and the measurements of ``triokafka perf``, which the repository's benchmarks use as well.

`load_run` sends and `read_run` reads; `payloads`, `open_loop` and `quantiles` are the load and its statistics, `meter`
measures this process, and `brokers` starts broker processes, of which `sink` only acknowledges. Imports no click.
"""
