"""Scientific primitives that two or more fields use."""
