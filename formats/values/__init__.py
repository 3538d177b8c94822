"""Released records as a schema registry's deserialisers read them: shapes, schemas, bytes."""
