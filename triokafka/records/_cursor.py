# cython: language_level=3
# cython: embedsignature=True, embedsignature.format=clinic
# mypy: ignore-errors
"""Records in a consumer's hand, and `async for` over them, to be compiled. Never imported as Python
(``triokafka.kernels``).

The twin, ``plain_cursor``, has the same interface with types and docstrings.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.object import PyObject
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.triokafka.records._coroutine import PYGEN_RETURN, set_resume


@cython.final
@cython.auto_pickle(False)
@cython.cclass
class RecordCursor:
    """The records that a consumer has in hand: ``iterator`` gives the rest of them."""

    iterator = cython.declare(object, visibility="public")

    def __init__(self):
        self.iterator = iter(())

    def over(self, next_run):
        """Return an iterator for ``async for``; at the end of ``iterator``, ``next_run`` fills it again and returns the
        first record."""
        records: _Records = _Records.__new__(_Records)
        records._cursor = self
        records._next_run = next_run
        return records


@cython.final
@cython.auto_pickle(False)
@cython.cclass
class _Records:
    # It is also what `__anext__` returns, so that a record costs no coroutine. It takes the record only when it is
    # awaited: a result of `__anext__` that nobody awaits loses none.

    _cursor = cython.declare(RecordCursor)
    _next_run = cython.declare(object)

    def __aiter__(self):
        return self

    def __anext__(self):
        return self

    def __await__(self):
        for record in self._cursor.iterator:
            taken: _Taken = _Taken.__new__(_Taken)
            taken._record = record
            return taken
        return self._next_run().__await__()


@cython.final
@cython.no_gc
@cython.freelist(8)
@cython.auto_pickle(False)
@cython.cclass
class _Taken:
    """The awaitable for a record that is there already: awaiting it returns the record at once."""

    _record = cython.declare(object)

    def __await__(self):
        return self

    def __next__(self):
        raise StopIteration(self._record)


@cython.cfunc
@cython.exceptval(-1)
def _resume(
    taken: cython.pointer(PyObject),
    value: cython.pointer(PyObject),
    result: cython.pointer(cython.pointer(PyObject)),
) -> cython.int:
    record = cython.cast(_Taken, taken)._record
    Py_INCREF(record)
    result[0] = cython.cast(cython.pointer(PyObject), record)
    return PYGEN_RETURN


set_resume(_Taken, _resume)
