"""Parts that several mechanisms are made of: bounds, thresholds, selections, sketches, trees."""
