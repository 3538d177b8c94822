"""``hush demo``: a private release on the screen. Broker, workload, workers and report."""
