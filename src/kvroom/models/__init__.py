"""What is served: layer kinds, model specs, and the readers that make them."""
