"""Declarations: configuration, records, frames and names of topics. No clocks, no Kafka clients."""
