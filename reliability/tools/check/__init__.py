"""May the calls of an answer be delivered? What is repaired, what is wrong, and how a model is told so."""
