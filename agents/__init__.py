"""The engine: Faust agents, shards and their transactions, the clock, the ledger, commands."""
