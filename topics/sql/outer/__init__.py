"""Parts around the SELECT over an input: joins, queries over released rows, views."""
