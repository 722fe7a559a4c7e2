"""Faults that tests and the control endpoint inject into responses."""
