"""Where a request goes next, how it is asked again, and how a refusal is worded."""
