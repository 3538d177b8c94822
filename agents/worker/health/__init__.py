"""How a worker is, for those who watch it: HTTP pages, and systemd."""
