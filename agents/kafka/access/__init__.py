"""Signing in, refusals of the cluster, and the owners of its topics."""
