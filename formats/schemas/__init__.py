"""Values that carry the id of their writer's schema: Avro, Protobuf and JSON Schema.

The readers of single records are ours, because a record's verdict must be the same in every list
and every replay: fastavro ends the process on 10 kB of nested records and reads a union's branch
-1, and the two implementations of Google's library disagree about field numbers above 2^29.
Hostile bytes never cost more here than their own length.
"""
