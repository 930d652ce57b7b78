"""The three tier kinds behind one protocol (`deployments.ports.Tier`), and what they share."""
