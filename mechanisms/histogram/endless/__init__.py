"""Windows without a stated end."""
