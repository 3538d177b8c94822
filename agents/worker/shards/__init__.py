"""Shards: one stage over one partition each, its steps, their transactions and rests."""
