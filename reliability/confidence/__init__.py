"""How likely an answer is right, told from the answer itself."""
