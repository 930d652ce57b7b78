"""What a person sends with a question: one file that names nobody."""
