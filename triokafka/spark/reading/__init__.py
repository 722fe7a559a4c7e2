"""Batch and streaming readers, and the reading of one task's ranges on an executor."""
