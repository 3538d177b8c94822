"""Raw records that were deleted before use: found at a start, and accepted by a person."""
