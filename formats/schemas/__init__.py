"""Values that carry the id of their writer's schema: Avro, Protobuf and JSON Schema."""
