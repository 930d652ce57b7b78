"""Tools of the project itself: nothing of the server imports them. `make docs` writes what the docs say of the code."""
