"""OAuth 2 for OAUTHBEARER: tokens from identity providers for clients, and their validation for brokers (KIP-768)."""
