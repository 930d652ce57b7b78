"""The three tier kinds behind one protocol (`deployments.interfaces.Tier`), and what they share."""
