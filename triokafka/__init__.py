"""Kafka for Trio: a client SDK, a broker and a Spark reader."""
