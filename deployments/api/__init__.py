"""What HTTP clients see: requests in, answers and streams out, who may ask, the routes for operators."""
