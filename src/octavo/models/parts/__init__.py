"""What transformers are put together from: each part holds weights, and the mathematics is in ops."""
