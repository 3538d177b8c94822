"""The last stage: partial sums become releases. Add up, close, add noise, publish."""
