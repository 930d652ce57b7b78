"""How short of memory a node is, who holds what of it, and how many replicas fit."""
