"""The live page in characters: bars, curves and maps for a terminal or a text file."""
