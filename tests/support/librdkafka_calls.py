"""Clients of librdkafka that cannot stop the process of the tests.

A call that waits in C code ends at no signal, so pytest-timeout cannot fail the test: the whole run waits for ever.
Calls without a time limit and the end of a client therefore run in a thread of their own.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin

_LONGEST_CALL: Final = 180.0
"""Seconds: more than any time limit that tests give to a call. It counts when pytest-timeout has fired already."""
_LONGEST_RETURN: Final = 1.0
_WITHOUT_LIMIT: Final = {
    "Consumer": ("assign", "close", "commit", "unassign", "unsubscribe"),
    "Producer": ("abort_transaction", "commit_transaction", "flush"),
}


def interruptible(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same call, which a signal can interrupt if the main thread makes it.

    Raises `TimeoutError` if the call does not end, not even long after the limit of the test.
    """

    @wraps(call)
    def interruptible_call(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return call(*arguments, **options)
        results: list[Any] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(call(*arguments, **options))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, name=f"{call.__name__} of a client of librdkafka", daemon=True)
        thread.start()
        thread.join(_LONGEST_CALL)
        if errors:
            raise errors.pop()
        if not results:
            raise TimeoutError(f"{call.__name__} of a client of librdkafka did not end within {_LONGEST_CALL:.0f} s")
        return results.pop()

    return interruptible_call


def _end_in_a_thread(client: Any) -> None:
    """Keep an unreferenced client until a thread drops it, which ends the client. This is its ``__del__``."""
    if not sys.is_finalizing():  # then no thread would start
        threading.Thread(target=_drop, args=([client],), name="end of a client of librdkafka", daemon=True).start()


def _drop(holder: list[Any]) -> None:
    until = time.monotonic() + _LONGEST_RETURN
    while (is_referred_to := sys.getrefcount(holder[0]) > 2) and time.monotonic() < until:
        time.sleep(0.001)  # until `_end_in_a_thread` has returned
    holder.clear()
    if is_referred_to:  # by itself, such as through a callback
        gc.collect()


def protect() -> None:
    """Replace the clients of confluent-kafka. Call it before other modules import them."""
    for name, methods in _WITHOUT_LIMIT.items():
        kind = getattr(confluent_kafka, name)
        changed = {method: interruptible(getattr(kind, method)) for method in methods}
        setattr(confluent_kafka, name, type(name, (kind,), {**changed, "__del__": _end_in_a_thread}))
    setattr(confluent_kafka.admin.AdminClient, "__del__", _end_in_a_thread)  # noqa: B010 - it has none yet
