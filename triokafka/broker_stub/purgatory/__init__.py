"""Delayed operations: a timing wheel, watch lists by key, completion exactly once."""
