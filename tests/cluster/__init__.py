"""A real API server takes the manifests and the chart: `make cluster`."""
