"""Tables of shards: restored from changelogs, kept as standbys, and copied to a store."""
