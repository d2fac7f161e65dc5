"""The studio's server: requests, scheduling, caches."""
