"""Keeps the assignment in step with the group, in the user's task that polls for records."""
