"""The broker: network, request handlers, logs, replicas, controller. `server.Broker` is the whole of it."""
