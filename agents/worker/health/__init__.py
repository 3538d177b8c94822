"""The health of a worker, shown on HTTP pages and to systemd."""
