"""Builds a release and tries it like a new user: ``make dist``.

A release is an sdist; a wheel with compiled kernels for each CPython found, with the oldest manylinux tag that fits;
the pure wheel; a bill of materials; the licences of the dependencies; and the release notes. Each package is installed
in a clean environment without a C compiler and runs `release/smoke.py` there. Nothing is uploaded.
"""
