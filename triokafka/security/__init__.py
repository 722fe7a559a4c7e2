"""Rules of security that clients and brokers share."""
