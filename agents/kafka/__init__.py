"""Kafka clients: the transport for Faust, transactional producers, readers of whole logs.

The package `private` holds the private names of Faust and aiokafka that the product relies on.
Nothing here looks into a record; stages do.
"""
