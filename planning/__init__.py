"""Proposals for settings, from public or synthetic samples and from stated shapes."""
