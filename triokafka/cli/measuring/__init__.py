"""Measuring producers, ours and other people's, under equal conditions, for ``triokafka perf`` and the benchmarks.

`job` says what is measured and what comes out of it, `clients` names the clients, and one ``drive_*`` module for each
library drives them. `process` gives each measurement its own process; `brokers` starts brokers, of which `sink` only
acknowledges, and asks them what they received. `values`, `open_loop` and `quantiles` are the load and its statistics.
"""
