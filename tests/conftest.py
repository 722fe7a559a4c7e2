"""What holds for all tests.

Examples of Hypothesis have no deadline, and may take long to make: on a busy machine any of them can, and what a test
says must not depend on that.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")
