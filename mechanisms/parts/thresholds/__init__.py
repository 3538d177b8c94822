"""Privately chosen thresholds, and thresholds of key selection."""
