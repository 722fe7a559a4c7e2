"""Draw all diagrams into ``docs/images``; with ``--record``, repeat the runs first that some of them show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from docs.diagrams.catalogue import DIAGRAMS

IMAGES: Final = Path(__file__).parents[1] / "images"


def main() -> int:
    """Write the files."""
    if "--record" in sys.argv[1:]:
        from docs.diagrams.recorded import record

        record()
    IMAGES.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (IMAGES / f"{name}.svg").write_text(draw().render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
