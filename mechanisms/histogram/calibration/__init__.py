"""Calibration of a histogram: its bound, the noise that a budget buys, thresholds and costs."""
