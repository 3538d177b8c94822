"""Raw records to columns: JSON, paths, types, times, keys."""
