"""Lines of the log: without the values of records, and one a minute for each cause."""
