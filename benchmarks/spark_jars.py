"""Downloads the jars of Spark's own Kafka connector from Maven.

The connector's own version for this Spark is tried first, and then older ones: each works with the Spark releases after
it for the purposes of the benchmark. The report names the versions.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from triokafka.cli.load.brokers import MeasurementError

DIRECTORY: Final = Path(__file__).parent.parent / ".interop" / "spark-jars"

_EARLIER: Final = ("4.3.0", "4.2.0", "4.1.1", "4.0.0")
_TIMEOUT: Final = 300
_CENTRAL: Final = """<settings><mirrors><mirror><id>central-only</id><mirrorOf>*</mirrorOf>
<url>https://repo.maven.apache.org/maven2</url></mirror></mirrors></settings>
"""


def connector_jars() -> list[Path]:
    """Return the four jars, downloaded into the checkout once.

    Raises:
        MeasurementError: Maven is missing, or has none of the versions.
    """
    import pyspark

    versions = tuple(dict.fromkeys((pyspark.__version__, *_EARLIER)))
    return [
        _jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", versions),
        _jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", versions),
        _jar("org.apache.kafka", "kafka-clients", ("3.9.1", "4.3.0")),
        _jar("org.apache.commons", "commons-pool2", ("2.12.1",)),
    ]


def _jar(group: str, name: str, versions: Sequence[str]) -> Path:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    there = [path for version in versions if (path := DIRECTORY / f"{name}-{version}.jar").exists()]
    if there:
        return there[0]
    settings = DIRECTORY / "settings.xml"
    settings.write_text(_CENTRAL)
    for version in versions:
        command = ["mvn", "-q", "-B", "-s", str(settings), "dependency:copy"]
        try:
            subprocess.run(
                [*command, f"-Dartifact={group}:{name}:{version}", f"-DoutputDirectory={DIRECTORY}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT,
                check=False,
                cwd=DIRECTORY,
            )
        except FileNotFoundError:
            raise MeasurementError("Spark's own connector comes from Maven, and mvn was not found") from None
        path = DIRECTORY / f"{name}-{version}.jar"
        if path.exists():
            return path
    raise MeasurementError(f"Maven has none of {', '.join(versions)} of {group}:{name}")
