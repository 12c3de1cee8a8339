"""Broken: no hook has the name of its second function."""

from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl


@hookimpl
def tape_backend_info():
    return BackendInfo(name="misspelled", contract=1, array_types=("misspelled:Array",))


@hookimpl
def tape_lode_backend():
    import array_api_strict

    return ArrayAPIBackend("misspelled", array_api_strict)
