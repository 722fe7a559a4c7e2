"""Partitions that this broker hosts: roles, high watermark, appends, reads, and replication from their leaders."""
