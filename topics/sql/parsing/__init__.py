"""The text of a query to its tree."""
