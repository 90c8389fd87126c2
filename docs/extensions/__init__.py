"""What the documentation is made with, beside Sphinx."""
