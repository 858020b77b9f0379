"""JAX on host devices: jit, explicit sharding and shard_map, compiled by XLA."""
