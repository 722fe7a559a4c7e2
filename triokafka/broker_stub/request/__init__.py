"""The path of a request from its frame to its response: dispatcher, handler registry, context, quotas."""
