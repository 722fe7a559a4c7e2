"""The names of ``aiokafka.coordinator``."""
