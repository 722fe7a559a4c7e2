"""Recovery of files that a crash left between two states, identified by the suffixes of their names.

A new segment is written as ``.cleaned``, becomes ``.swap`` when it is complete, and loses the suffix when the replaced
segments are out of the way; those become ``.deleted``. The directory is synced between two steps, so the names alone
show the state of a replacement: with a ``.cleaned`` at or below a ``.swap`` it had not begun; otherwise it must be
finished.
"""

from __future__ import annotations

from collections.abc import Collection

from triokafka.broker_stub.log.batch_positions import scan_batches
from triokafka.broker_stub.log.segment_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    is_segment_file,
)
from triokafka.errors import CorruptRecordError
from triokafka.world import Storage


def complete_swaps(storage: Storage, directory: str) -> None:
    """Remove files that were being deleted or are incomplete, and finish the replacements that had begun.

    Raises:
        OSError: the directory cannot be read or written.
    """
    names = storage.list_dir(directory)
    cleaned = [base for name in names if (base := _base_of(name, CLEANED_SUFFIX)) is not None]
    incomplete = min(cleaned, default=None)
    swaps = {}
    doomed = []
    for name in names:
        base = _base_of(name, SWAP_SUFFIX)
        if base is not None and (incomplete is None or base < incomplete):
            swaps[name] = base
        elif name.endswith(SWAP_SUFFIX):
            doomed.append(name)
    for name in doomed:
        storage.remove(f"{directory}/{name}")
    if doomed:
        storage.sync_dir(directory)  # before removing the files that prove them incomplete
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")):
            storage.remove(f"{directory}/{name}")
    if swaps:
        _finish(storage, directory, swaps)


def remove_unfinished(storage: Storage, directory: str, *, keep: Collection[int]) -> None:
    """Remove the remains of failed replacements, except ``.cleaned`` files at the base offsets ``keep``.

    Raises:
        OSError: the directory cannot be read or written.
    """
    names = storage.list_dir(directory)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    for name in swaps:
        storage.remove(f"{directory}/{name}")
    if swaps:
        storage.sync_dir(directory)  # before removing the files that prove them incomplete
    for name in names:
        if name.endswith(CLEANED_SUFFIX) and _base_of(name, CLEANED_SUFFIX) not in keep:
            storage.remove(f"{directory}/{name}")


def _finish(storage: Storage, directory: str, swaps: dict[str, int]) -> None:
    """Rename complete ``.swap`` files, all of one replacement, over the segments that begin in their range.

    A ``.log`` is removed only by the rename over it, which precedes the renames of its indexes.
    """
    ranges = [_range(storage, f"{directory}/{name}", base) for name, base in swaps.items() if _is_log(name)]
    renamed = {name.removesuffix(SWAP_SUFFIX) for name in swaps}
    if ranges:
        start, end = min(first for first, _ in ranges), max(last for _, last in ranges)
        for name in storage.list_dir(directory):
            base = _base_of(name, "")
            if base is not None and start <= base < end and name not in renamed:
                storage.remove(f"{directory}/{name}")
        storage.sync_dir(directory)
    for name in sorted(swaps, key=lambda name: (swaps[name], not _is_log(name))):
        storage.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
        storage.sync_dir(directory)


def _range(storage: Storage, path: str, base: int) -> tuple[int, int]:
    """Return the offsets of a segment's batches, as [first, end)."""
    end = base + 1
    file = storage.open(path, read_only=True)
    try:
        for place in scan_batches(file, 0, file.size()):
            end = max(end, place.last_offset + 1)
    except CorruptRecordError:
        pass  # recovery will cut it there
    finally:
        file.close()
    return base, end


def _is_log(name: str) -> bool:
    return name.endswith(LOG_SUFFIX + SWAP_SUFFIX)


def _base_of(name: str, suffix: str) -> int | None:
    """Return the base offset in a file name that ends with ``suffix``; None for other files."""
    return int(name[:20]) if any(is_segment_file(name, kind + suffix) for kind in SEGMENT_SUFFIXES) else None
