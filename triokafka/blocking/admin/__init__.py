"""The admin client of kafka-python: see `client`."""
