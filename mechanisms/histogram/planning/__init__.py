"""Forecast a histogram's errors and find settings of least error, by formulas or runs in memory."""
