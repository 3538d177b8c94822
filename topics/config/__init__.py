"""The configuration file: model, parser with line numbers, overrides, checks, canonical form."""
