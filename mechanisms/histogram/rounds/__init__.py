"""The histogram of the DP-SQLP paper: a key is released in rounds."""
