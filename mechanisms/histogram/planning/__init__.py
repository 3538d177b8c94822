"""Forecasts of a histogram's errors, and settings of least error, by formulas or runs in memory."""
