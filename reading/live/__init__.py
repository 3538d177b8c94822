"""Releases to look at: a live page in the browser and pictures, from the public topics alone."""
