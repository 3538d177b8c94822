"""Tables of TOML to typed settings, with line numbers."""
