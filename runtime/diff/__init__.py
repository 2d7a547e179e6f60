"""Two reports side by side: what became slower or larger, beyond the noise of both."""
