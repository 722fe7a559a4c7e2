"""How a broker reaches the active controller: registration, heartbeats, and every change of the cluster."""
