"""What the user types: commands, options, the error boundary, and everything that shows values (render/)."""
