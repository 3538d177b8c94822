"""Pictures of the shipped dashboards, from what a real Prometheus says: `make dashboards`."""
