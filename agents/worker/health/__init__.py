"""The health of a worker, for those who watch it: HTTP pages, and systemd."""
