"""The clients' metrics under Kafka's names: catalogue, registry, and the sensors of producer and consumer."""
