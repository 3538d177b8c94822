"""Parts of a pipeline, each compiled from its settings."""
