"""Raw records to columns: JSON and frames, paths, types, times, keys."""
