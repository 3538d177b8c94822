"""The clock decides which records belong to which release, and pays for each epoch beforehand.

It holds the ledger and the genesis too, because only one writer may spend the budget. It
never sees a record of a raw topic, only offsets.
"""
