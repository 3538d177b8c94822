"""The whole `docker-compose.yml` on a real engine: `make e2e`."""
