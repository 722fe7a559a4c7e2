"""Tests of the producer's half of transactions."""
