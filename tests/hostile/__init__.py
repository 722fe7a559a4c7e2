"""Hostile runs: clients with very large or very slow requests, storms of connections, damaged files, silent networks.

``python -m tests.hostile [SECTION …]`` runs them and prints one table of figures and limits. Each section is a module
with a function ``measure() -> Iterator[Row]``; `make long` runs all sections, `make test` a short form of each.
"""
