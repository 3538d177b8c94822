"""The view stage: arithmetic on releases, which costs nothing."""
