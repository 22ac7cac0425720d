"""What people look at: evaluations as plain data, figures, and pages made from them."""
