"""Primitives that at least two methods of the field share."""
