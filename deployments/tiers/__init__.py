"""The three tier kinds behind one protocol (`deployments.ports.Tier`), and the replica that serves one of them."""
