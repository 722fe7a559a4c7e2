"""The producer: an accumulator that callers fill, and one sender task that empties it to the brokers."""
