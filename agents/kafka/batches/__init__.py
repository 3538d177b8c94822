"""Batches of records as Kafka sends them: read with limits, scanned and written by loops."""
