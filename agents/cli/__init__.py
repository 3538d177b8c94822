"""``hush``: one file per command. Commands print and ask; other packages do the work."""
