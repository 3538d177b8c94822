"""Public facts about releases: shapes of records, schemas and privacy statements."""
