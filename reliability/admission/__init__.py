"""May this call run now? Breakers, token budgets and the retry budget, in one step."""
