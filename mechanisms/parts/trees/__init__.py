"""Trees of noisy sums: their shape, their nodes, and consistent estimates."""
