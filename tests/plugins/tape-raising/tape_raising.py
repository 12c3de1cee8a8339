"""Broken where nobody sees it before it runs: a kernel raises."""

from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl


def sin(x):
    raise OSError("the driver has gone away")


def cos(x):
    raise ValueError("no cosines today")


@hookimpl
def tape_backend_info():
    return BackendInfo(name="raising", contract=1, array_types=("array_api_strict:Array",))


@hookimpl
def tape_load_backend():
    import array_api_strict

    return ArrayAPIBackend("raising", array_api_strict, kernels={"sin": sin, "cos": cos})
