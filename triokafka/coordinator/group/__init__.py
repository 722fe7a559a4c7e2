"""The group coordinator: its requests, the shard of one partition of ``__consumer_offsets``, and the records in it."""
