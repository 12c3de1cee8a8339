"""Broken: written to a contract that this Tape does not speak."""

from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl


@hookimpl
def tape_backend_info():
    return BackendInfo(name="tomorrow", contract=99, array_types=("tomorrow:Array",))


@hookimpl
def tape_load_backend():
    import array_api_strict

    return ArrayAPIBackend("tomorrow", array_api_strict)
