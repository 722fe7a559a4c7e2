"""Producers of several Kafka clients, measured under equal conditions: ``triokafka perf produce --compare``.

`job` describes a measurement and its result, `catalogue` names the clients, and one ``drive_*`` module per library
drives them. `process` gives each measurement a process; `brokers` starts brokers and asks them what they received;
`comparison` runs the clients in turn, and `compare_command` prints their medians.
"""
