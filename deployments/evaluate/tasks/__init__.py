"""Small broken repositories, the tools to work on them in a throw-away folder, and who works on them."""
