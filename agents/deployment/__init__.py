"""The compiled configuration: pipelines with their mechanisms, topics and public statements.

Everything here is public and follows from the configuration alone. It imports ``mechanisms`` and
``topics``, and never a Kafka client, a clock or the state of a shard.
"""
