# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""The survey kernel, to be compiled: the facts that a leader checks about a batch's records. Never imported as Python.

The twin, ``plain_survey``, has the same interface with types and docstrings.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.triokafka.records._wire import (
    ORDER,
    Record,
    check_headers,
    read_long_record,
    read_short_record,
)

from triokafka.records.corruption import FAULTS, corrupt_batch, corrupt_record


def survey_records(
    data,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    topic,
    partition,
):
    """Walk ``count`` records; return (oldest, newest, without key)."""
    view = cython.declare(Py_buffer)
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        if position < 0 or position > end or end > view.len:
            raise ValueError("the payload lies outside of the buffer")
        base: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf)
        p: cython.p_const_uchar = base + position
        stop: cython.p_const_uchar = base + end
        index: cython.longlong = 0
        keyless: cython.longlong = 0
        oldest: cython.longlong = -1
        newest: cython.longlong = -1
        timestamp: cython.longlong
        failure: cython.int = 0
        found = cython.declare(Record)
        closer = cython.declare(Record)
        while index < count:
            if stop - p >= 16 and read_short_record(p, stop, cython.address(found)):
                pass
            else:
                failure = read_long_record(p, stop, cython.address(closer))
                if failure:
                    break
                found = closer
            if found.delta != index:
                failure = ORDER
                break
            if found.end - found.headers != 1 or found.headers[0] != 0:
                failure = check_headers(found.headers, found.end)
                if failure:
                    break
            timestamp = cython.cast(
                cython.longlong,
                cython.cast(cython.ulonglong, base_timestamp) + cython.cast(cython.ulonglong, found.elapsed),
            )
            if timestamp > newest:
                newest = timestamp
            if timestamp != -1 and (oldest == -1 or timestamp < oldest):
                oldest = timestamp
            keyless += found.key_size < 0
            p = found.end
            index += 1
        if failure:
            raise corrupt_record(topic, partition, 0, index, FAULTS[failure])
        if p != stop:
            raise corrupt_batch(topic, partition, 0, f"{stop - p} bytes follow its {count} records")
        return oldest, newest, keyless
    finally:
        PyBuffer_Release(cython.address(view))
