"""What people look at: figures (and pages) made from plain data."""
