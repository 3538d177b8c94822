"""One shard's state as bytes: where rows are stored, how they are written, and their layouts.

It knows bytes and RocksDB, and nothing of Kafka, of stages or of privacy.
"""
