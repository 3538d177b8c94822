"""Thresholds that are chosen privately, and thresholds of key selection."""
