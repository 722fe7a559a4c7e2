"""Coordinators: they keep the state of groups and their offsets in the log of an internal topic.

An operation produces records and an answer; durable state changes only when records are replayed; the runtime holds the
answer until the records are committed. `runtime` does this for any type of coordinator, and `group` is one. This
package does no network I/O and does not know how the broker stores the log.
"""
