"""From a GGUF file to a graph: hyperparameters, placement, architecture, memory, context."""
