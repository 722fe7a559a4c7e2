"""The transaction coordinator (KIP-98): transactional ids, their producers and the state of their transactions."""
