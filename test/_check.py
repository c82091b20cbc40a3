"""What every test prints: `ok NAME`, `FAIL NAME: why` and `skip NAME: why` lines, and the exit status of them all.

    from _check import check, holds, runs, checked, skip, end
    check("adds", 1 + 1 == 2, "why not")    a condition
    holds("adds", function)                 a function: None is fine, a text says what is wrong, an exception fails it
    runs("adds", function)                  only an exception fails it
    @checked("adds")                        the same, of the function that follows
    sys.exit(end())                         1 if anything failed

`_check.prefix` goes before every name; with `_check.only` (words of the command line) just the names with one of them
in it are run.
"""
prefix, only, failed = "", [], []
LENGTH = 2500  # of what is said about a failure, from its end


def check(name, ok, why=""):
    """Says whether it holds, and returns that."""
    if ok:
        print("ok " + prefix + name, flush=True)
    else:
        failed.append(name)
        print(f"FAIL {prefix}{name}: " + "\n  ".join(str(why)[-LENGTH:].splitlines()), flush=True)
    return bool(ok)


def holds(name, fn):
    if only and not any(o in name for o in only):
        return True
    try:
        why = fn()
    except Exception as e:  # the next test still runs
        why = f"{type(e).__name__}: {e}"
    return check(name, not why, why)


def runs(name, fn):
    return holds(name, lambda: (fn(), None)[1])


def checked(name):
    return lambda fn: runs(name, fn)


def skip(name, why):
    print(f"skip {prefix}{name}: {why}", flush=True)


def end():
    return 1 if failed else 0
