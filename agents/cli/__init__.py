"""``hush``: one file for each command. Commands print and ask; the work is done elsewhere."""
