"""``hush``: one file for each command. Commands print and ask; other rooms do the work."""
