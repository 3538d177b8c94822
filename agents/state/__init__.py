"""One shard's bytes: where rows lie, how they are written, and the layout of every one of them.

It knows bytes and RocksDB, and nothing of Kafka, of stages or of privacy.
"""
