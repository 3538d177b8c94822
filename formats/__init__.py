"""Records in and out: JSON, Avro, Protobuf and JSON Schema."""
