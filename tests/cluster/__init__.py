"""A real API server accepts the manifests and the chart: `make cluster`."""
