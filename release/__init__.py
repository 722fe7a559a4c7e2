"""Builds what a release consists of, and tries it as a stranger: ``make dist``.

An sdist; a wheel with compiled kernels for each CPython that is found, with the oldest manylinux tag that fits; the
pure wheel; a bill of materials, the licences of the dependencies, the release notes. Each package is installed in a
clean environment without a C compiler and runs `release/smoke.py` there. Nothing is uploaded.
"""
