from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl

ARRAY_TYPES = ("array_api_strict:Array",)


@hookimpl
def tape_backend_info():
    return BackendInfo(
        name="strict",
        contract=1,
        array_types=ARRAY_TYPES,
        install="pip install array-api-strict",
    )


@hookimpl
def tape_load_backend():
    import array_api_strict

    return ArrayAPIBackend("strict", array_api_strict, array_types=ARRAY_TYPES)
