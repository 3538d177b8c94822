"""Settings of inputs: their fields, attributes of units, lookups, sessions."""
