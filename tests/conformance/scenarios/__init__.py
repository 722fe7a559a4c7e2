"""The scenarios, a module for each area. Each asserts only what Apache Kafka does, and is run on it, too."""
