"""What to configure: proposals from public or synthetic samples, and from stated shapes."""
