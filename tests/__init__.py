"""The tests of what is outside of the two packages: configuration, files, style; and what all tests share."""
