"""The live page in characters: bars, curves and maps for a terminal, or for a file of text."""
