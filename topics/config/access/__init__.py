"""Keys, and connections to Kafka and registries: what files and clients need."""
