"""The producer's half of transactions (KIP-98, KIP-360, KIP-447, KIP-890).

`TransactionManager` is the pure state machine, `TransactionTask` sends its requests, `Transactions` connects both with
the producer's batches, and `Transaction` is the object that the user holds.
"""
