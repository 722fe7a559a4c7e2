"""Scenarios that third-party clients must pass with a broker, drivers for the clients, and results."""
