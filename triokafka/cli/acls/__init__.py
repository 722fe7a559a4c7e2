"""``triokafka acls``: list, add and remove ACLs, with the flags of ``kafka-acls``."""

from triokafka.cli.acls.commands import command

__all__ = ["command"]
