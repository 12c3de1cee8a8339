"""XLA as a compiler: programs of any backend's arrays become functions that `jax.jit` compiles."""
