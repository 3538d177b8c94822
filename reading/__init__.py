"""Reading releases: from the public topics to complete releases, tables and maps."""
