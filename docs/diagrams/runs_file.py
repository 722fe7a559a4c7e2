"""Where the data of recorded runs is kept."""

from pathlib import Path
from typing import Final

RUNS: Final = Path(__file__).parent / "runs.json"
