"""A private release on a screen, from nothing but Python: broker, workload, worker, report."""
