"""The log cleaner: keeps the last record of every key in logs whose ``cleanup.policy`` has ``compact``.

`log_cleaner.LogCleaner` decides which log is next and drives the passes. `cleaner_pass.CleanerPass` is one pass over
one log, imported when there is something to clean. `cleaning_progress.CleaningProgress` keeps the checkpoints.
"""
