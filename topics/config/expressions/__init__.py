"""Settings of expressions over one record, and what they mean."""
