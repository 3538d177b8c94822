"""Compiled scans of values in Avro and Protobuf."""
