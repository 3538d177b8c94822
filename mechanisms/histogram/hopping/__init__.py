"""Windows that hop: each is the sum of the last n hops."""
