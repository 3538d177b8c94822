"""The middle stage: slices become exact partial sums, within each unit's contribution bound."""
