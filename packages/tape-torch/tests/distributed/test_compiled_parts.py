"""Compiled functions of divided arrays, from the call on in which they are computed by parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import run_processes, run_python

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("compiled_in_processes.py")


def test_parts_give_what_eager_calls_give() -> None:
    run_processes(PROGRAM.read_text(encoding="utf-8"), 2, environment={"TAPE_COMPILED_PARTS": ""})


@pytest.mark.parametrize("n", [2, 4])
def test_where_one_process_cannot_make_code_all_compute_op_by_op_and_name_it(n: int) -> None:
    program = PROGRAM.with_name("unmade_in_processes.py").read_text(encoding="utf-8")
    run_processes(program, n, environment={"TAPE_COMPILED_PARTS": ""})


def test_programs_of_parts_can_be_turned_off() -> None:
    code = (
        "import sys, tape_core as tc\nfrom tape_torch.distributed import distribute, mesh\n"
        "x = distribute(tc.ones(4), (), mesh=mesh())\nprint('tape_torch.divided_programs' in sys.modules)"
    )
    assert run_python("-c", code, environment={"TAPE_COMPILED_PARTS": "0"}, timeout=120).strip() == "False"


def test_a_variable_of_the_environment_that_is_no_switch_is_refused() -> None:
    code = (
        "import tape_core as tc\nfrom tape_torch.distributed import distribute, mesh\n"
        "try: distribute(tc.ones(4), (), mesh=mesh())\nexcept ValueError as e: print(e)"
    )
    found = run_python("-c", code, environment={"TAPE_COMPILED_PARTS": "yes"}, timeout=120)
    assert found.strip() == "TAPE_COMPILED_PARTS='yes' is neither 0 nor 1"


def lines_of(*names: str) -> list[str]:
    """Return the lines of a schedule of the program that `names` describe, as text."""
    torch = pytest.importorskip("torch")
    from tape_compile.extend import Instruction, Ref, Spec
    from tape_torch.divided_schedule import Schedule

    c10d = torch.ops._c10d_functional
    small, specs, lines = Spec(torch.Tensor, (4,), torch.float32), {}, []
    numbers = {"x": 0, "w": 1}

    def number(name: str) -> int:
        specs[numbers.setdefault(name, len(numbers))] = small
        return numbers[name]

    for name in names:
        out, _, call = name.partition(" = ")
        function, *given = call.split()
        args: tuple[Any, ...] = tuple([Ref(number(one)) for one in given])
        fn = getattr(c10d, function).default if hasattr(c10d, function) else len
        args = (*args, *{"all_reduce": ("sum", "0"), "all_gather_into_tensor": (2, "0")}.get(function, ()))
        effect = fn is not len or function == "effect"
        lines.append(Instruction(function, fn, args, {}, number(out), None, effect=effect))
    fresh = iter(range(100, 200))

    def new(spec: Spec) -> int:
        specs[k := next(fresh)] = spec
        return k

    schedule = Schedule(lines, specs, new, [])
    known = {k: name for name, k in numbers.items()}
    return [f"{line.name} {' '.join([known.get(k, '*') for k in line.inputs])}".strip() for line in schedule.lines]


def test_a_sum_is_waited_for_after_the_next_ones_have_begun() -> None:
    pytest.importorskip("tape_torch")
    import tape_torch.divided_schedule as module

    names = ["a = f x", "s = all_reduce a", "t = wait_tensor s", "u = update t", "b = f w", "c = f b"]
    assert lines_of(*names) == ["f x", "f w", "f b", "all_reduce a", "wait_tensor s", "update t"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SUMMED_ALONE_BYTES", 0)
        more = [*names[:4], "b = g w", "p = all_reduce b", "q = wait_tensor p", "v = update q", "d = h w"]
        found = lines_of(*more)
    assert found.index("all_reduce b") < found.index("wait_tensor s")
    assert found.index("h w") < found.index("wait_tensor s")


def test_small_sums_are_taken_together() -> None:
    pytest.importorskip("tape_torch")
    names = ["s = all_reduce x", "t = wait_tensor s", "u = update t", "p = all_reduce w", "q = wait_tensor p"]
    found = lines_of(*names, "v = update q")
    assert [line.partition(" ")[0] for line in found] == [
        "joined", "all_reduce", "wait_tensor", "parted", "update", "update"
    ]  # fmt: skip


def test_an_effect_has_its_place() -> None:
    pytest.importorskip("tape_torch")
    names = ["s = all_reduce x", "t = wait_tensor s", "e = effect w", "p = all_reduce w", "q = wait_tensor p"]
    assert lines_of(*names) == ["all_reduce x", "wait_tensor s", "effect w", "all_reduce w", "wait_tensor p"]


def test_a_weight_is_asked_for_before_the_one_before_it_is_used() -> None:
    pytest.importorskip("tape_torch")
    import tape_torch.divided_schedule as module

    names = ["s = all_gather_into_tensor x", "t = wait_tensor s", "u = f t", "h = view w"]
    names += ["p = all_gather_into_tensor h", "q = wait_tensor p", "v = g u q"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GATHERED_TOGETHER_BYTES", 0)
        assert lines_of(*names) == [
            "all_gather_into_tensor x", "view w", "all_gather_into_tensor h", "wait_tensor s", "f t", "wait_tensor p",
            "g u q",
        ]  # fmt: skip
    # Small ones are gathered together.
    assert lines_of(*names) == [
        "view w", "joined x h", "all_gather_into_tensor *", "wait_tensor *", "parted *", "f *", "g u *"
    ]  # fmt: skip


def test_what_is_gathered_together_lies_as_what_is_gathered_alone() -> None:
    torch = pytest.importorskip("torch")
    from tape_compile.extend import Spec
    from tape_torch.divided_schedule import _Gathered

    one, other = torch.arange(6.0).reshape(2, 1, 3), torch.arange(8.0).reshape(2, 2, 2)  # of two processes
    flat = torch.cat([torch.cat([one[k].reshape(-1), other[k].reshape(-1)]) for k in range(2)])
    specs = [Spec(torch.Tensor, (1, 3), torch.float32), Spec(torch.Tensor, (2, 2), torch.float32)]
    for found, expected in zip(_Gathered(specs, 2)(flat), (one.reshape(2, 3), other.reshape(4, 2)), strict=True):
        assert torch.equal(found, expected)
        assert found.is_contiguous()


def test_what_is_gathered_twice_is_gathered_once() -> None:
    pytest.importorskip("tape_torch")
    import tape_torch.divided_savings as module

    first = ["s = all_gather_into_tensor x", "t = wait_tensor s", "u = f t"]
    second = ["p = all_gather_into_tensor x", "q = wait_tensor p", "v = g u q"]
    assert lines_of(*first, *second) == ["all_gather_into_tensor x", "wait_tensor s", "f t", "g u t"]
    again = lines_of(*first, "e = effect w", *second)  # it may have written into x
    assert again.count("all_gather_into_tensor x") == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GATHERED_KEPT_BYTES", 0)
        found = lines_of(*first, *second)
    assert "joined x x" in found  # both parts by one collective, but nothing is kept for another one


def test_a_sum_goes_where_nothing_else_is_needed() -> None:
    torch = pytest.importorskip("torch")
    from tape_compile.extend import Instruction, Ref
    from tape_torch.divided_savings import summed_in_place

    ops = torch.ops._c10d_functional

    def sums(*more: Instruction, outputs: tuple[int, ...] = ()) -> list[Any]:
        product = Instruction("matmul", torch.ops.aten.mm.default, (Ref(0), Ref(1)), {}, 2, None)
        total = Instruction("all_reduce", ops.all_reduce.default, (Ref(2), "sum", "0"), {}, 3, None, effect=True)
        return [line.fn for line in summed_in_place([product, *more, total], outputs) if line.name == "all_reduce"]

    assert sums() == [ops.all_reduce_.default]
    assert sums(outputs=(2,)) == [ops.all_reduce.default]
    view = Instruction("view", torch.ops.aten.view.default, (Ref(2), (4,)), {}, 4, None)
    assert sums(view) == [ops.all_reduce.default]


def test_a_product_that_is_sent_with_others_is_made_where_it_is_sent_from() -> None:
    torch = pytest.importorskip("torch")
    from tape_compile.extend import Instruction, Program, Ref, Source, Spec
    from tape_torch.divided_savings import flattened, made_in_place

    square, row = Spec(torch.Tensor, (3, 3), torch.float64), Spec(torch.Tensor, (3,), torch.float64)
    specs = {0: square, 1: square, 2: square, 3: row, 4: row._replace(shape=(12,)), 5: square}
    product = Instruction("matmul", torch.ops.aten.mm.default, (Ref(0), Ref(1)), {}, 2, None)
    total = Instruction("sum", torch.ops.aten.sum.dim_IntList, (Ref(0), [0]), {}, 3, None)
    sent = Instruction("joined", flattened, (Ref(2), Ref(3)), {}, 4, None)
    used = Instruction("matmul", torch.ops.aten.mm.default, (Ref(2), Ref(1)), {}, 5, None)
    x, y = torch.arange(9.0, dtype=torch.float64).reshape(3, 3), torch.eye(3, dtype=torch.float64) * 2

    for more, outputs, is_made_there in (([], [4], True), ([used], [4, 5], False), ([], [4, 2], False)):
        fresh = iter(range(10, 20))

        def new(spec: Spec, fresh: Any = fresh) -> int:
            specs[k := next(fresh)] = spec
            return k

        lines = made_in_place([product, total, sent, *more], specs, new, outputs)
        assert ("room" in [line.name for line in lines]) is is_made_there
        found = Source(Program(lines, [0, 1], {}, outputs, specs, None), "sent").run([x, y])
        assert torch.equal(found[0], torch.cat([(x @ y).reshape(-1), x.sum(0)]))
