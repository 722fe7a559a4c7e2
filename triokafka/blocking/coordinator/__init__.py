"""The package of ``kafka.coordinator``."""
