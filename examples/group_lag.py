"""Print the lag of every consumer group without joining any, as a monitor would do every minute.

python examples/group_lag.py localhost:9092
"""

from __future__ import annotations

import sys

import trio

import triokafka


async def main(bootstrap_servers: str = "localhost:9092") -> None:
    """Print the lag of each group by topic. Errors of single partitions are printed, and do not stop the rest."""
    async with triokafka.AdminClient(bootstrap_servers=bootstrap_servers) as admin:
        groups = [listing.group_id for listing in await admin.list_groups() if listing.is_consumer_group]
        committed = await admin.list_offsets_of_groups(groups)
        for group, error in committed.errors.items():
            print(f"{group}: {error}", file=sys.stderr)
        known = {group: committed[group] for group in groups if group not in committed.errors}
        ends = await admin.list_offsets({tp: "latest" for positions in known.values() for tp in positions})
        for group, positions in known.items():
            lag: dict[str, int] = {}
            for tp, position in positions.items():
                if tp not in ends.errors:  # the topic may be deleted, or its leader down
                    lag[tp.topic] = lag.get(tp.topic, 0) + ends[tp].offset - position.offset
            for topic, records in sorted(lag.items()):
                print(f"{group} {topic} {records}")


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
