"""Pure steps: state and records in, changed rows and records out.

One package for each stage, in the order in which an event passes them: ingest, bound, aggregate. No
stage reads a wall clock, talks to Kafka or writes a file, so that a worker, a replay and a
simulation run the same code.
"""
