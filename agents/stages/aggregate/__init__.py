"""From partial sums to releases: add up, close, add noise, publish."""
