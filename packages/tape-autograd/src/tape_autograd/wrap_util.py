"""Operators on functions of one argument become operators on functions of many, by the number of the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_autograd.substitution import subvals

Function = Callable[..., Any]


def get_name(f: object) -> str:
    """Return the name of a function, for messages."""
    return getattr(f, "__name__", "[unknown name]")


def get_doc(f: object) -> str:
    """Return the docstring of a function, or an empty text."""
    return getattr(f, "__doc__", None) or ""


def wraps(fun: Function, namestr: str = "{fun}", docstr: str = "{doc}", **kwargs: object) -> Callable[[Function], Any]:
    """Give a function the name and the docstring of another one, in these formats."""

    def decorate(f: Function) -> Function:
        f.__module__ = getattr(fun, "__module__", None) or f.__module__
        try:
            f.__name__ = namestr.format(fun=get_name(fun), **kwargs)
            f.__doc__ = docstr.format(fun=get_name(fun), doc=get_doc(fun), **kwargs)
        except (KeyError, IndexError, ValueError):  # braces in the docstring
            f.__doc__ = get_doc(fun)
        return f

    return decorate


_DOC = """\
    {op} of function {fun} with respect to argument number {argnum}. Takes the
    same arguments as {fun} but returns the {op}.
    """


def unary_to_nary(unary_operator: Function) -> Any:
    """Return an operator that takes `argnum`, an int or several, of one on functions of a single argument.

    >>> from tape_autograd.tracing import make_vjp
    >>> gradient = unary_to_nary(lambda f, x: make_vjp(f, x)[0](1.0))
    >>> print(gradient(lambda x, y: x * y, 1)(2.0, 3.0))
    2.0
    """

    @wraps(unary_operator)
    def nary_operator(fun: Function, argnum: Any = 0, *nary_op_args: Any, **nary_op_kwargs: Any) -> Any:
        if type(argnum) not in (int, tuple, list):
            raise TypeError(f"argnum must be an int, or a tuple or list of them; got {argnum!r}")

        @wraps(fun, "{op}_of_{fun}_wrt_argnum_{argnum}", _DOC, op=get_name(unary_operator), argnum=argnum)
        def nary_f(*args: Any, **kwargs: Any) -> Any:
            @wraps(fun)
            def unary_f(x: Any) -> Any:
                pairs = [(argnum, x)] if isinstance(argnum, int) else zip(argnum, x, strict=True)
                return fun(*subvals(args, pairs), **kwargs)

            try:
                x = args[argnum] if isinstance(argnum, int) else tuple([args[i] for i in argnum])
            except IndexError:
                raise TypeError(
                    f"{get_name(unary_operator)} of {get_name(fun)}: it is called with {len(args)} positional "
                    f"arguments, of which number {argnum} was to be differentiated"
                ) from None
            return unary_operator(unary_f, x, *nary_op_args, **nary_op_kwargs)

        return nary_f

    return nary_operator
