"""Real servers that tests start: a schema registry, Kafka Connect, PostgreSQL."""
