"""From slices to exact partial sums, within each privacy unit's contribution bound."""
