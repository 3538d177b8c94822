"""Windows and sessions of a query."""
