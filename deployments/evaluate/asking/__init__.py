"""Who is asked: a server of the evaluation's own for each variant, or any URL, over HTTP."""
