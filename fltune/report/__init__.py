"""What a search found, for people: summaries, tables, the live display."""
