"""The package of ``kafka.coordinator.assignors``."""
