"""``hush``: one file for each command. Commands print and ask; other packages do the work."""
