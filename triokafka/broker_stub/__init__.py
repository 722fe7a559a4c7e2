"""The broker and the controller: network, request handlers, logs, replicas, coordinators, metadata quorum.

`node.Node` is one process with the roles of ``process.roles``: it starts `broker.Broker`, the controller, or both.
"""
