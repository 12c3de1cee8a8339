"""Broken: it does not say whose arrays are its own."""

from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl


@hookimpl
def tape_backend_info():
    return BackendInfo(name="typeless", contract=1, array_types=())


@hookimpl
def tape_load_backend():
    import array_api_strict

    return ArrayAPIBackend("typeless", array_api_strict)
