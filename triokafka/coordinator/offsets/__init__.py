"""Positions that groups commit: storing, reading, deleting and expiring them. Pure."""
