"""The three tier kinds behind one protocol (`deployments.request.interfaces.Tier`), and what they share."""
