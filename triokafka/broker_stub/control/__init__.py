"""The control endpoint of a broker for tests, over HTTP."""
