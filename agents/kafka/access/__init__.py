"""Means by which clients sign in, and rights that only aiokafka can ask for."""
