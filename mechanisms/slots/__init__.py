"""Streams of values in time slots: encoding, chunks and state shared by PAK and ToPS."""
