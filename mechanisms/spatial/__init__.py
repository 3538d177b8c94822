"""Domains of points: cells, regions, private trees over them, synthetic points."""
