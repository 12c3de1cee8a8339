"""Calls of a program as one function that XLA compiles."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.dtypes import canonicalize_dtype
from jax.sharding import NamedSharding
from tape_compile.extend import Flow, Instruction, Program, Ref
from tape_core.random import State, advancing
from tape_core.staging import outside
from tape_core.support import COUNTS_REFERENCES
from tape_core.support import layouts as kept_layouts
from tape_core.typing import Raw

from tape_jax import devices
from tape_jax.conversion import cut
from tape_jax.tasks import JaxCall
from tape_jax.xla.draws import generator_of, state_array
from tape_jax.xla.flows import FlowLowering, constants_of, generators_of, program_of
from tape_jax.xla.kept import Keeping, keeping
from tape_jax.xla.levels import blocks_drawn
from tape_jax.xla.lowering import LAYOUT, is_uniform
from tape_jax.xla.on_host import OnHost, is_for
from tape_jax.xla.transfer import into, is_of_jax, jax_dtype, out_of
from tape_jax.xla.work import least_seconds

if TYPE_CHECKING:
    from tape_core.random import Generator

_NOWHERE: Mapping[int, NamedSharding] = MappingProxyType({})

_INLINE_MAX_ELEMENTS = 4096
"""Constants up to this size are part of the code; of larger ones XLA would take long to fold what they lead to."""


def _is_argument(constant: Any) -> bool:
    """Return whether a constant is given to each call: it is large, or divided among devices, as code cannot be."""
    return (getattr(constant, "size", 0) > _INLINE_MAX_ELEMENTS and not is_uniform(constant)) or (
        isinstance(constant, jax.Array) and len(constant.sharding.device_set) > 1
    )


def _is_of_tape(instructions: Sequence[Instruction]) -> bool:
    """Return whether all is computed by Tape's kernels: a function of the user's may need JAX's own devices."""
    for instruction in instructions:
        fn: Any = instruction.fn
        if type(fn) is JaxCall:
            return False
        if type(fn) is Flow and not all([_is_of_tape(program_of(part).instructions) for part in fn.parts]):
            return False
    return True


def calls_python(program: Any) -> bool:
    """Return whether a program of JAX, a jaxpr, calls functions of Python when it runs: it has callbacks somewhere."""
    jaxpr = getattr(program, "jaxpr", program)
    if isinstance(program, tuple | list):
        return any([calls_python(part) for part in program])
    if not hasattr(jaxpr, "eqns"):
        return False
    return any(["callback" in one.primitive.name or calls_python([*one.params.values()]) for one in jaxpr.eqns])


def _wait_for(given: Sequence[Raw]) -> None:
    """Wait until arguments are computed: what computes them may draw, in a callback, which must not wait for us."""
    computed: Any = jax.block_until_ready  # which has no types
    computed([x for x in given if isinstance(x, jax.Array) and not x.is_deleted()])


_REFERENCES = 3
"""To an argument that nobody else has: two tuples of the arguments, and the call that counts."""


def _donated(
    program: Program, inputs: Sequence[int], outputs: Sequence[int], replaced: Collection[int]
) -> tuple[int, ...]:
    """Return the places of the arguments whose memory results can take: donated arrays of JAX, like a result each.

    Args:
        program: all of it.
        inputs, outputs: the numbers of arguments and results.
        replaced: those of arguments that are values of Variables and may be given away.
    """
    specs = program.specs
    if not COUNTS_REFERENCES:  # nor is it known what else somebody has
        return ()
    results = Counter([(specs[k].shape, specs[k].dtype) for k in outputs])
    found = []
    for at, k in enumerate(inputs):
        spec = specs[k]
        # Of `owned`, 0 says that it is a Variable's. Single numbers are what histories keep, which are copied then.
        is_given = program.owned.get(k, 0) > 0 or (k in replaced and -1 not in spec.shape and spec.size > 1)
        if is_given and k not in program.outputs and is_of_jax(spec) and results[spec.shape, spec.dtype]:
            results[spec.shape, spec.dtype] -= 1
            found.append(at)
    return tuple(found)


class Segment:
    """Instructions that are one function of `jax.jit`: it takes and returns arrays of the program's own libraries.

    Attributes:
        inputs, outputs: the numbers of its arguments and results.
        native: whether it has JAX's arrays among them.
        takes_variables: whether XLA may be given the memory of Variables, so that it must be known what has become of
            a call.
        large: the constants that each call is given.
        whole: the function for arrays of other libraries, or the one that keeps values of Variables, of states, large
            constants and the tuple of the arguments, where no random numbers are drawn; else None.
        plain: the function of `jax.jit` itself, of states, large constants and arguments, where nothing is converted
            and no random numbers are drawn; else None.
    """

    __name__ = "xla"

    def __init__(
        self,
        program: Program,
        instructions: list[Instruction],
        inputs: Sequence[int],
        outputs: list[int],
        name: str,
        replaced: Collection[int] = (),
        deferrable: Collection[int] = (),
    ) -> None:
        self.inputs = list(inputs)
        self.outputs = outputs
        self._program = program
        self._name = name
        specs = program.specs
        used = {k for instruction in instructions for k in instruction.inputs} | {*outputs}
        constants = {k: v for k, v in constants_of(program).items() if k in used}
        large = {k: v for k, v in constants.items() if _is_argument(v)}
        self._small = {k: v for k, v in constants.items() if k not in large}
        self._large_numbers = list(large)
        self._instructions = instructions
        self._is_of_tape = _is_of_tape(instructions)
        self._keys = list(generators_of(program.replace(instructions)))
        self._blocks = blocks_drawn(instructions)
        # Other threads that draw wait for a call that tells only at its end how far generators have gone: they would
        # get the same numbers. See `trace` for functions of JAX.
        self._others_wait = bool(self._keys) and self._blocks is None
        into_all = [into(specs[k]) for k in self.inputs]
        self._into = None if not any(into_all) else into_all
        outs = [out_of(specs[k]) for k in outputs]
        self._out_of = None if not any(outs) else outs
        self.native = self._out_of is None
        self._on_host: OnHost | None = None
        self._keeping: Keeping | None = None
        places = {k: at for at, k in enumerate(self.inputs)}
        pairs = [(outputs.index(o), places[i]) for i, o in program.updates.items() if i in places and o in outputs]
        ins, out_specs = [specs[k] for k in self.inputs], [specs[k] for k in outputs]
        defers = [outputs.index(k) for k in deferrable]
        seconds = least_seconds(instructions, specs)
        if all([is_for(specs[k]) for k in (*self.inputs, *outputs, *constants)]) and self._is_of_tape:
            self._on_host = OnHost(self._traced, ins, out_specs, pairs, defers, seconds)
            self.large = tuple(map(self._on_host.put, large.values()))
            self._jitted = self._on_host.jitted
        else:
            self.large = tuple([jnp.asarray(v) for v in large.values()])
            self._jitted = jax.jit(self._traced)
        # Arguments as which values are laid out, such as Variables, of which these are gradients: their places.
        likes = {one.args[1].id for one in instructions if one.name == LAYOUT and type(one.args[1]) is Ref}
        self._likes = [at for at, k in enumerate(self.inputs) if k in likes]
        self._by_layout: dict[tuple[Any, ...], Any] = {}
        self._donated = () if self._on_host is not None else _donated(program, self.inputs, outputs, replaced)
        if self._on_host is None and self._into is None and self._out_of is None and self._is_of_tape:
            found = keeping(self._traced, self._function, ins, out_specs, pairs, defers, seconds)
            # Small values are kept, too, where the user gives them away, unless there are large ones beside them.
            if found is not None and found.arguments.issuperset(self._donated):
                self._keeping, self._donated = found, ()
        self._of_variables = {at for at in self._donated if self.inputs[at] in replaced}
        self.takes_variables = bool(self._of_variables)
        self._has_run = False
        self._donating: Any = None
        if self._donated:
            jit: Any = jax.jit
            after = 2  # the states and the large constants
            self._donating = jit(self._traced, donate_argnums=[after + at for at in self._donated])
        whole = self._on_host if self._keeping is None else self._keeping
        more: list[Any] = [
            whole, self._into, self._out_of, self._keys or None, self._likes or None, self._donating
        ]  # fmt: skip
        self.whole = whole if not self._keys and (self._on_host is not None or not self._likes) else None
        self.plain = self._jitted if all([part is None for part in more]) else None

    def trace(self, examples: Sequence[Raw] | None) -> None:
        """Lower the instructions now, so that what cannot be lowered is refused at the first call."""
        if examples is None:
            examples = [self._example(k) for k in self.inputs]
        elif self._into is not None:
            examples = [value if f is None else f(value) for f, value in zip(self._into, examples, strict=True)]
        # The very structure of a call: of another one, JAX would lower the program once more.
        states = [state_array(generator_of(key)) for key in self._keys]
        if self._on_host is not None:
            self._on_host.trace(states, self.large, examples)
            return
        if self._keeping is not None:
            traced = self._keeping.trace(states, self.large, examples)
        else:
            function = self._function(examples) if self._donating is None else self._donating
            traced = function.trace(states, self.large, *examples)
        # XLA calls Python in a thread of its own, where the user may draw: who draws there must not wait for the call.
        self._others_wait = self._others_wait and (self._is_of_tape or not calls_python(traced.jaxpr))

    def _for_call(self, given: tuple[Raw, ...]) -> Any:
        """Return the function of a call: where nobody else has what is donated to it, one that uses its memory."""
        is_free = self._donating is not None and not (self._likes and kept_layouts.in_use)
        if is_free and all([sys.getrefcount(given[at]) <= _REFERENCES for at in self._donated]):
            return self._donating
        return self._function(given)

    def _function(self, given: Sequence[Raw]) -> Any:
        """Return the function for arguments that are divided as these are."""
        if not self._likes or not kept_layouts.in_use:
            return self._jitted
        places = tuple([devices.place_on_mesh(given[at]) for at in self._likes])
        if not any(places):
            return self._jitted
        found = self._by_layout.get(places)
        if found is None:
            known = {self.inputs[at]: place for at, place in zip(self._likes, places, strict=True) if place is not None}
            found = self._by_layout[places] = jax.jit(partial(self._traced, layouts=known))
        return found

    def _example(self, k: int) -> Any:
        spec = self._program.specs[k]
        if spec.dtype is None:
            return spec.kind()
        like: Any = jax.ShapeDtypeStruct  # its constructor has no types
        return like(spec.shape, jax_dtype(spec.kind, spec.dtype))

    def _traced(
        self, states: Sequence[Raw], large: Sequence[Raw], *given: Raw, layouts: Mapping[int, NamedSharding] = _NOWHERE
    ) -> tuple[list[Any], list[Any]]:
        if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]  # JAX traces anew where it has changed
            self._expect_32_bits()
        values = {**self._small, **dict(zip(self._large_numbers, large, strict=True))}
        values.update(zip(self.inputs, given, strict=True))
        known = {id(value) for value in values.values()}
        with outside():
            lowering = FlowLowering(self._program, values, dict(zip(self._keys, states, strict=True)), self._name)
            lowering.layouts.update(layouts)
            lowering.run(self._instructions)
        outs = []
        for k in self.outputs:
            value = lowering.values[k]
            # JAX returns an argument that comes back as it is, so that it would be two Tensors' memory.
            outs.append(jnp.copy(value) if id(value) in known else value)
            known.add(id(value))
        ends = [lowering.states[key] for key in self._keys] if self._blocks is None else []
        return outs, ends

    def _expect_32_bits(self) -> None:
        for spec in self._program.specs.values():
            if spec.dtype is not None and (dtype := jax_dtype(spec.kind, spec.dtype)) != canonicalize_dtype(dtype):
                raise cut(np.dtype(dtype))

    def __call__(self, *given: Raw) -> Sequence[Any]:
        if not self._others_wait:
            return self._called(given)
        _wait_for(given)
        with advancing():
            return self._called(given)

    def _called(self, given: tuple[Raw, ...]) -> Sequence[Any]:
        begun, states = self._begun()
        if self._on_host is not None:
            return self.results(self._on_host(states, self.large, given), begun)
        if self._keeping is not None:
            if not (self._likes and kept_layouts.in_use):
                return self.results(self._keeping(states, self.large, given), begun)
            return self._keeping.unpacked(states, self.large, given)
        given = self._converted(given)
        return self.results(self._for_call(given)(states, self.large, *given), begun)

    @property
    def deferred(self) -> list[list[int]]:
        """The places of results that are deferred values, in groups."""
        if self._on_host is not None:
            return self._on_host.deferred
        return [] if self._keeping is None else self._keeping.deferred

    def _begun(self) -> tuple[list[tuple[Generator, State]], list[Any]]:
        """Return generators with their states, also as arrays; they go on at once where it is known how far."""
        if not self._keys:
            return [], []
        each = [(generator_of(key), 0 if self._blocks is None else self._blocks.get(key, 0)) for key in self._keys]
        begun = [(one, one._state if self._blocks is None else one._take(blocks)) for one, blocks in each]
        return begun, [np.asarray(state, np.uint64) for _, state in begun]

    def call_into(self, made: list[Any], given: tuple[Raw, ...]) -> Sequence[Any]:
        """Call the function with the memory of Variables; what it returns is in a list as soon as it has returned.

        Args:
            made: the list, to which it is added.
            given: the arguments: the caller has no reference to them but by this tuple, and Variables have theirs.

        Raises:
            RuntimeError: XLA has failed, and Variables have lost their values.
        """
        if not self._others_wait:
            return self._called_into(made, given)
        _wait_for(given)
        with advancing():
            return self._called_into(made, given)

    def _called_into(self, made: list[Any], given: tuple[Raw, ...]) -> Sequence[Any]:
        begun, states = self._begun()
        own = 2 if self._into is None else 3  # references: the tuple, the converted one, and the call that counts
        given = self._converted(given)
        function, taken = self._donating, set[int]()
        if self._likes and kept_layouts.in_use:
            function = self._function(given)
        else:
            held = {
                at
                for at in self._donated
                # Results of the first run are checked, and may be refused.
                if (at in self._of_variables and not self._has_run)
                or sys.getrefcount(given[at]) > own + (at in self._of_variables)
            }
            if held:  # for a function that takes less memory, XLA would compile all once more
                given = tuple([jnp.copy(value) if at in held else value for at, value in enumerate(given)])
            taken = self._of_variables - held
        if any([given[at].is_deleted() for at in self._of_variables]):
            raise RuntimeError(
                f"{self._name}: the memory of a Variable was given to XLA, in a call that has not ended or has failed: "
                f"with donate_variables, no other thread, callback or signal handler may use it meanwhile"
            )
        try:
            # In C alone: no signal handler comes between what XLA does with Variables' memory and the list.
            made.extend(map(function, [states], [self.large], *zip(given, strict=True)))
        except BaseException as error:
            self._tell_lost([given[at] for at in taken], error)
            raise
        self._has_run = True
        return self.results(made[-1], begun)

    def _converted(self, given: tuple[Raw, ...]) -> tuple[Raw, ...]:
        if self._into is None:
            return given
        return tuple([value if f is None else f(value) for f, value in zip(self._into, given, strict=True)])

    def results(
        self, made: tuple[Sequence[Any], Sequence[Any]], begun: Sequence[tuple[Generator, State]] = ()
    ) -> Sequence[Any]:
        """Return the results of what XLA's function has returned; generators go on where that says.

        Args:
            made: what it has returned.
            begun: generators with their states before. One that somebody has set meanwhile stays as it is.
        """
        found, ends = made
        if self._out_of is not None and self._on_host is None:
            found = [value if f is None else f(value) for f, value in zip(self._out_of, found, strict=True)]
        if ends:
            for (generator, start), state in zip(begun or self._begun()[0], ends, strict=True):
                if generator._state is start:
                    key0, key1, counter = (int(word) for word in np.asarray(state))
                    generator._state = key0, key1, counter
        return found

    def _tell_lost(self, values: Sequence[Raw], error: BaseException) -> None:
        """Say of an error whether Variables have lost these values by it.

        Raises:
            RuntimeError: they have.
        """
        lost = [value for value in values if value.is_deleted()]
        if not lost:
            return
        shapes = ", ".join(dict.fromkeys([str(value.shape) for value in lost]))
        text = (
            f"{self._name}: the call ended after XLA had been given the memory of {len(lost)} Variables, of shapes "
            f"{shapes}, whose values are lost: load them again, or leave out donate_variables"
        )
        if isinstance(error, Exception):
            raise RuntimeError(f"{text}. XLA says: {error}") from error
        error.add_note(text)

    def serialized(self, derivatives: int) -> bytes:
        """Return the function of the inputs as StableHLO; it returns a tuple of the outputs."""
        from jax import export

        def function(*given: Raw) -> tuple[Any, ...]:
            return tuple(self._traced([], self.large, *given)[0])

        made = export.export(jax.jit(function))(*[self._example(k) for k in self.inputs])
        return bytes(made.serialize(vjp_order=derivatives))
