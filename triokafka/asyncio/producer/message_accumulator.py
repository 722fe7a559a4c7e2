"""aiokafka's module of `BatchBuilder`, from which programs import it for annotations."""

from triokafka.asyncio.producer.batch_builder import BatchBuilder

__all__ = ["BatchBuilder"]
