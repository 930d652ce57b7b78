"""Where a request goes next, how it is asked again, and what is said where it gets no answer."""
