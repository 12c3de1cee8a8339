from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl

ARRAY_TYPES = ("tape_immutable.arrays:Array",)


@hookimpl
def tape_backend_info():
    return BackendInfo(
        name="immutable",
        contract=1,
        array_types=ARRAY_TYPES,
        install="pip install ./tests/plugins/tape-immutable",
    )


@hookimpl
def tape_load_backend():
    import array_api_compat.numpy
    import numpy

    from tape_immutable.arrays import Namespace

    class Immutable(ArrayAPIBackend):
        def quiet(self):
            return numpy.errstate(all="ignore")

        @staticmethod
        def put(array, key, values):
            return array.replaced(key, values)

    return Immutable("immutable", Namespace(array_api_compat.numpy), array_types=ARRAY_TYPES, version=numpy.__version__)
