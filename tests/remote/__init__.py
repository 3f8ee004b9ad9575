"""Other projects' tests and tools, pointed at a running server. None of this is collected by pytest."""
