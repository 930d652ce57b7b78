"""Function-calling cases, and what each layer of the server makes of them."""
