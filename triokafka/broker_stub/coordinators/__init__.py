"""The coordinators that a broker hosts: their registry, their internal topics, and the log under them."""
