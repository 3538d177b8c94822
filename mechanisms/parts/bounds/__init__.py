"""Contribution bounds: applying, planning and stating them; purses; the correction of maps."""
