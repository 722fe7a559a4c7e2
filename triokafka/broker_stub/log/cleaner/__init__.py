"""The log cleaner: keeps the last record of every key in logs whose ``cleanup.policy`` includes ``compact``.

`log_cleaner.LogCleaner` selects the next log and runs the passes. `cleaner_pass.CleanerPass` is one pass over one log;
it is imported only when a log needs cleaning. `cleaning_progress.CleaningProgress` keeps the checkpoints.
"""
