"""Partitions that this broker hosts: roles, high watermark, appends and reads, fetch sessions. Acts on image changes."""
