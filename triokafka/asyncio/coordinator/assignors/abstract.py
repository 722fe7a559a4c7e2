"""The base of aiokafka's assignors: classes that stand for the SDK's assignors."""

from __future__ import annotations

from typing import ClassVar


class AbstractPartitionAssignor:
    """Stands for one of the SDK's assignors by its protocol name. Both the class and its instances are accepted."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 0
