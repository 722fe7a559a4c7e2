"""The metrics that clients push to this broker (KIP-714): subscriptions, instances, and the last values."""
