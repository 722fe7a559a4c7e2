"""``python -m triokafka``."""

from triokafka.cli import main

main()
