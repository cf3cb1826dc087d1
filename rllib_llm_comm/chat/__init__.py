"""Chat models: requests with retries, caches, recordings, and models in this process."""
