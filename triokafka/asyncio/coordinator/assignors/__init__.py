"""The names of ``aiokafka.coordinator.assignors``."""
