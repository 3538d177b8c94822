"""Authentication, refused rights, and the ownership of topics."""
