"""Measurement results as JSON."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(document: Any) -> str:
    """Format a document as JSON. NaN (not measured) becomes null, because JSON has no NaN."""
    return json.dumps(_without_nan(document), indent=1)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value
