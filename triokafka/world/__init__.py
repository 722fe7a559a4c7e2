"""The only way to the operating system: clocks, randomness, connections, storage and worker threads.

Every long-lived object receives a `World` and reaches the outside only through it, so that a test can replace the
operating system. In the simulation each node has its own world, with a clock that skews, a disk that loses unsynced
data, and a network that delays, drops and cuts.

This package exports the interfaces. `triokafka.world.system.RealWorld` implements them over the operating system,
`triokafka.world.memory.MemoryStorage` is storage in memory.

Relative waits (``trio.sleep``, ``trio.move_on_after``, ``trio.fail_after``) are Trio's own everywhere; points in time
are seconds on `World.now`, and `World.deadline` turns one into a Trio deadline.
"""

from triokafka.world.doorbell import Doorbell
from triokafka.world.file import File
from triokafka.world.file_slice import FileSlice
from triokafka.world.listener import Listener
from triokafka.world.storage import Storage
from triokafka.world.stream import Stream
from triokafka.world.world import World

__all__ = ["Doorbell", "File", "FileSlice", "Listener", "Storage", "Stream", "World"]
