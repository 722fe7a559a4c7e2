"""Hostile runs: strangers that send the largest and the slowest, storms of connections, damaged files, silent networks.

``python -m tests.hostile [SECTION …]`` runs them and prints one table of figures beside their limits. Each section is a
module with a function ``measure() -> Iterator[Row]``; `make long` runs all sections, `make test` a short form of each.
"""
