"""JAX as a backend, as docs/write-a-backend.md makes one: what a library's own author would begin with."""

from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl

ARRAY_TYPES = ("jax:Array",)


@hookimpl
def tape_backend_info():
    return BackendInfo(
        name="plain-jax",
        contract=1,
        array_types=ARRAY_TYPES,
        install="pip install jax",
    )


@hookimpl
def tape_load_backend():
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)  # or float64 would become float32

    class Backend(ArrayAPIBackend):
        @staticmethod
        def put(array, key, values):
            return array.at[key].set(values)

        @staticmethod
        def is_known(array):
            return not isinstance(array, jax.core.Tracer)

    return Backend("plain-jax", jnp, array_types=ARRAY_TYPES, version=jax.__version__)
