"""Requests of a broker to the active controller: registration, heartbeats, and all changes of the cluster."""
