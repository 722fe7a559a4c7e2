"""Shared helpers of the tests: brokers, proxies, scripted peers, workloads and the lists of planted bugs."""
