"""Raw records that were deleted before they were used: found at once, and accepted by a person."""
