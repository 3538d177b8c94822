"""Pure steps: state and records in; changed rows and records out.

One room for each stage, in the order of the way of an event: ingest, bound, aggregate. No stage
reads a wall clock, talks to Kafka or writes a file, so that a worker, a replay and a simulation run
the same code.
"""
