"""Pictures of the shipped dashboards, from the answers of a real Prometheus: `make dashboards`."""
