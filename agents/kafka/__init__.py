"""Kafka clients: the transport for Faust, transactional producers, readers of whole logs.

The private names of Faust and aiokafka that the product relies on stand in one module of this
room. It never looks into a record: what is in one is the business of the stages.
"""
