"""The clock decides which records belong to which release, and pays for each epoch beforehand.

It holds the ledger and the genesis too, because whoever spends the budget must be one writer. It
never sees a record of a raw topic, only offsets.
"""
