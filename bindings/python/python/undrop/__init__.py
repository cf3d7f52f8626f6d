"""Recovers lost packets before applications notice the loss; `undrop.multicast` is the multicast library."""
