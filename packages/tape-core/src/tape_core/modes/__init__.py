"""Ways to run a derivative rule: forward mode, Jacobians, vmap, a function as one op, replay."""
