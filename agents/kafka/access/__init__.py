"""Means by which clients sign in, rights that only aiokafka can ask for, and who owns a topic."""
