"""Broken in company: tape-twin-one has a backend of the same name."""

from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl


@hookimpl
def tape_backend_info():
    return BackendInfo(name="twin", contract=1, array_types=("twin:Array",))


@hookimpl
def tape_load_backend():
    import array_api_strict

    return ArrayAPIBackend("twin", array_api_strict)
