"""The NumPy reference: right values, shards and redistribution plans, without a framework."""
