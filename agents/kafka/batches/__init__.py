"""Kafka's record batches: read within limits, scanned and written by compiled loops."""
