#!/bin/sh
# Runs triokafka with the given arguments. With CLUSTER_ID, first formats the data directory of a cluster's node,
# unless it is formatted already.
set -eu
if [ -n "${CLUSTER_ID:-}" ]; then
    triokafka storage format --ignore-formatted --cluster-id "$CLUSTER_ID" \
        --config "${NODE_CONFIG:-/etc/triokafka/node.properties}"
fi
exec triokafka "$@"
