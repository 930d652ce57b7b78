"""What tests share: small worlds, servers, clients, values, and programs that tests start."""
