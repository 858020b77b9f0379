"""The NumPy reference: right values, shards and plans, with no framework."""
