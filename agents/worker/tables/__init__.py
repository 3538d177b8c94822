"""Tables of shards: restored from changelogs, followed for others, and copied to a store."""
