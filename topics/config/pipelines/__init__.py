"""Settings of pipelines: windows, budgets, schedules, keys, views."""
