"""Building blocks of several mechanisms: bounds, thresholds, selections, sketches, trees."""
