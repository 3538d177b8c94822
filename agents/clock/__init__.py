"""The clock decides which records belong to which release, and pays for each epoch beforehand.

The ledger and the genesis are here too, because only one writer may spend the budget. The clock
never sees a record of a raw topic, only offsets.
"""
