"""A class has a name of its own in the package, so that a search for it finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

import triokafka

_PACKAGE: Final = Path(triokafka.__file__).parent
_OTHERS_NAMES: Final = frozenset({"protocol", "asyncio", "blocking"})
"""Their classes are named by others: by Kafka's messages, by aiokafka and kafka-python."""
REASONS: Final = {
    "ConfigEntry": "Kafka's noun at both ends: what a broker describes, and what the admin client returns",
    "ConfigSynonym": "as ConfigEntry",
    "MemberState": "Kafka's noun at both ends: of a member at its client, and at its coordinator",
    "Node": "a process with roles, and a broker's address, which every Kafka client calls a node",
    "QuotaViolationError": "of the metrics library, and one that programs of kafka-python and aiokafka catch by name",
    "TransactionState": "Kafka's noun at both ends: of a producer, and of its coordinator",
}


def test_no_two_classes_have_one_name_without_a_reason() -> None:
    found = defaultdict(list)
    for path in _PACKAGE.rglob("*.py"):
        is_kernel = path.name.startswith("_") and path.name != "__init__.py"  # each has a twin in plain Python
        if is_kernel or path.relative_to(_PACKAGE).parts[0] in _OTHERS_NAMES:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    assert {name for name, paths in found.items() if len(paths) > 1} == set(REASONS), "REASONS is not up to date"
