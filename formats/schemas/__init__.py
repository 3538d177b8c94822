"""Values that carry the id of their writer's schema: Avro, Protobuf and JSON Schema.

The readers of single records are our own, because the verdict on a record must be the same in every
batch and every replay: fastavro crashes on 10 kB of nested records and accepts a union's branch -1,
and the two implementations of Google's library disagree about field numbers above 2^29. The cost of
hostile bytes here is at most linear in their length.
"""
