"""Streams of values in slots of time: encoding, chunks and the state that PAK and ToPS share."""
