"""Partitions that this broker hosts: roles, high watermark, appends, reads, fetch sessions."""
