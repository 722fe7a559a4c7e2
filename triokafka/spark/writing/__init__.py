"""The sink of ``format("triokafka")``, and `kafka_batch` for functions of ``foreachBatch``."""
