"""Walks through the commands, one after the other, as a person sees them."""
