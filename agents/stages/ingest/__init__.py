"""From raw records and the clock log to slices of micro-batches."""
