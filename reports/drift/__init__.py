"""What changed between two releases of a framework? Told from the committed records alone."""
