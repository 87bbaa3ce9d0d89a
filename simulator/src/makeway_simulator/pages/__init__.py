"""Scripts that pages carry inline."""
