"""Keeps the assignment in step with the group, in the task of the user who asks for records."""
