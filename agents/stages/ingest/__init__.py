"""The first stage: raw records and the clock log become slices of micro-batches."""
