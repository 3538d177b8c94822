"""Commands that judge a pipeline before any budget is spent."""
