"""The first stage: the clock log cuts raw records into slices of micro-batches."""
