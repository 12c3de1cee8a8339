"""Broken: the module needs what is not installed."""

from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl
from unimportable_arrays import Array  # noqa: F401 - nobody has it


@hookimpl
def tape_backend_info():
    return BackendInfo(name="unimportable", contract=1, array_types=("unimportable:Array",))


@hookimpl
def tape_load_backend():
    import array_api_strict

    return ArrayAPIBackend("unimportable", array_api_strict)
