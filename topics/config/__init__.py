"""The configuration file: model, parsing with line numbers, merging, checks, canonical form."""
