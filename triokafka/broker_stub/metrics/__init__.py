"""The broker's metrics: their catalogue and the HTTP endpoint for Prometheus."""
