/* src/guard/preload_function.h
 * Python that tells the guard which function of a JAX program is about to be compiled (function.c): the module `_xlane`
 * of a guarded process, which preload_jax.h puts to work. Whatever goes wrong in it, JAX is as it was.
 *
 * `who` walks up to the frame of jax.jit, whose `fun` is the function, and looks through wrappers (jax.grad, partial,
 * shard_map, a method) for the first code that is the user's own; a library's function has no answer. It is
 * "PATH:LINE", the function's first line. Functions that a factory makes share that: each that is alive beside the
 * others gets a number, "#2". One that is gone leaves its number to the next of the same code, so a function that is
 * jitted anew in each iteration of a loop stays one function, and two lambdas on one line are two. ".forward",
 * ".backward": outside of jit, JAX differentiates a jitted function in programs under its name.
 *
 * `own` says of a library's function that the library jitted it and not the user: its module is a library's, and the
 * name that it has there is not the function but what jax.jit made of it, or in JAX itself (single ops have no name
 * there) anything else. What jax.value_and_grad and its like make of a function is JAX's code under the name and module
 * of that function.
 *
 * `filter_call` reads a call of equinox.filter_jit, which hands JAX a function and arguments of its own: the names that
 * the user's function has for them, and the values among them that are no arrays. `static_fields` has those of other
 * arguments. `array` puts `located` around the
 * reads and waits of JAX's arrays: it tells the guard the user's line for as long as they last (execute.c). */
#ifndef XL_GUARD_PRELOAD_FUNCTION_H
#define XL_GUARD_PRELOAD_FUNCTION_H

static const char guard_preload_function[] =
    "exec(compile('''\n"
    "import functools, os, sys, types, weakref\n"
    "functions, uses, stdlib = {}, [0], (types.__file__.rpartition('/')[0] + '/', '<frozen')\n"
    "roles = {'linearize': '.forward', 'partial_eval': '.forward', 'transpose': '.backward', 'batch': '.batched'}\n"
    "def who():\n"
    "    f, fun, info, role = sys._getframe(1), None, None, ''\n"
    "    for _ in range(100):\n"
    "        if f is None: break\n"
    "        name, path = f.f_code.co_name, f.f_code.co_filename\n"
    "        if name == 'cache_miss' and '/jax/_src/' in path:\n"
    "            fun = f.f_locals.get('fun')\n"
    "            break\n"
    "        if name.startswith('_pjit_') and not role:\n"
    "            role = next((r for k, r in roles.items() if k in name), '')\n"
    "        if name == 'from_hlo' and info is None:\n"
    "            info = f.f_locals.get('all_args_info')\n"
    "        f = f.f_back\n"
    "    if own(fun): return None, '', '', ()\n"
    "    user = unfiltered(fun, f)\n"
    "    way, at = codes(user)\n"
    "    text = getattr(getattr(info, 'debug_info', None), 'func_src_info', None) or ''\n"
    "    path, _, line = text.partition(' at ')[2].rpartition(':')\n"
    "    other = user is fun and path and line.isdigit() and (path, int(line)) not in map(begins, way)\n"
    "    fun = user\n"
    "    if other:\n" /* that frame is another function's */
    "        fun, way, at = None, [], None if library(path) else (path, int(line))\n"
    "    if at is None: return '', '', '', ()\n"
    "    known = functions.setdefault((at, role), [])\n"
    "    alive = [i for i, k in enumerate(known) if fun is not None and k[0]() is fun]\n"
    "    free = [i for i, k in enumerate(known) if k[0]() is None and k[1] == way]\n"
    "    uses[0] += 1\n"
    "    try: ref = weakref.ref(fun)\n"
    "    except TypeError: ref = type(None)\n" /* it cannot be watched */
    "    entry = ref, way, uses[0]\n"
    "    if alive: n = alive[0]\n"
    "    elif free: n = max(free, key=lambda i: known[i][2])\n"
    "    elif fun is None and known: n = 0\n"
    "    else:\n"                             /* other threads may do the same at this moment: each has its own place */
    "        known.append(entry)\n"
    "        n = [k is entry for k in known].index(True)\n"
    "    known[n] = entry\n"
    "    name = '_lambda' if way and way[-1].co_name == '<lambda>' else way[-1].co_name if way else ''\n"
    "    qualified = getattr(way[-1], 'co_qualname', name).rpartition('.<locals>.')[2] if way else ''\n"
    "    lent = [c.co_name for c in way[:-1]]\n" /* by libraries that wrap it */
    "    return '%s:%d' % at + ('#%d' % (n + 1) if n else '') + role, name, qualified, lent\n"
    "def own(fun):\n"
    "    if type(fun) is not types.FunctionType or not library(fun.__code__.co_filename): return False\n"
    "    home = sys.modules.get(str(fun.__module__))\n"
    "    if not library(str(getattr(home, '__file__', None))): return False\n" /* it is written like the user's */
    "    for part in fun.__qualname__.split('.'): home = getattr(home, part, None)\n"
    "    jax = str(fun.__module__).startswith('jax._src.') and '<locals>' not in fun.__qualname__\n"
    "    return home is not fun and (jax or getattr(home, '__wrapped__', None) is fun)\n"
    "def begins(code): return code.co_filename, code.co_firstlineno\n"
    "def library(path):\n"
    "    return any(k in path for k in ('/site-packages/', '/dist-packages/', '/jax/_src/')) or "
    "path.startswith(stdlib)\n"
    "def codes(fun):\n" /* the codes on the way to the user's, and where that is */
    "    todo, met, way = [fun], set(), []\n"
    "    while todo and len(met) < 64:\n"
    "        f = todo.pop(0)\n"
    "        if id(f) in met: continue\n"
    "        met.add(id(f))\n"
    "        if type(f) is types.MethodType: todo.append(f.__func__)\n"
    "        elif type(f) is functools.partial: todo.append(f.func)\n"
    "        elif type(f) is types.FunctionType:\n"
    "            way.append(f.__code__)\n"
    "            at = begins(f.__code__)\n"
    "            if not library(at[0]): return way, at\n"
    "            todo.append(f.__dict__.get('__wrapped__'))\n"
    "            for cell in f.__closure__ or ():\n"
    "                try: todo.append(cell.cell_contents)\n"
    "                except ValueError: pass\n"
    "        elif type(f).__name__ == 'PjitFunction': todo.append(getattr(f, '__wrapped__', None))\n"
    "        elif type(f).__name__ == 'WrappedFun': todo.append(getattr(f, 'f', None))\n" /* pmap's */
    "        elif type(getattr(type(f), '__call__', None)) is types.FunctionType:\n"
    "            todo += [getattr(f, '__dict__', {}).get('__wrapped__'), type(f).__call__]\n"
    "    return way, None\n"
    "''', '<xlane>', 'exec'), __import__('sys').modules.setdefault('_xlane',\n"
    "    __import__('types').ModuleType('_xlane')).__dict__)\n";

/* How a function was called, as far as it decides whether JAX knows the program again, the structure of its
 * arguments, which of them are weakly typed, and the Python values that it was made of: lines of words between tabs,
 * for lane/call.c. Static arguments: by value where they are numbers or strings (the fields of a dataclass, and a
 * default that was left, too), else by their hash; those that compare by identity are called `anew`. Values: numbers
 * and strings that the user's function takes from its closure, from globals, or from an object or dictionary there; of
 * lists, tuples, dictionaries, sets and arrays there the size, unless the code only adds to them. Nothing of the
 * user's is called but what JAX has called already (a `__hash__`, flattening), and the `__repr__` of static fields. */
static const char guard_preload_values[] =
    "exec(compile('''\n"
    "class Cleared:\n" /* as a cache of JAX, which it empties when jax.clear_caches() is called */
    "    times = 0\n"
    "    def cache_clear(self): self.times += 1\n"
    "    def cache_info(self): return None\n"
    "    def cache_keys(self): return []\n"
    "cleared = Cleared()\n"
    "def plain(v):\n"
    "    return v is None or type(v) in (bool, int, float) or type(v) is str and len(v) < 40 and v.isprintable()\n"
    "def size(v):\n" /* of what may grow; how many elements come first */
    "    if type(v) in (list, tuple, dict, set): return '%d %s' % (len(v), type(v).__name__)\n"
    "    kind = {'numpy': 'NumPy array', 'jaxlib': 'JAX array'}.get(type(v).__module__.partition('.')[0])\n"
    "    if kind is None or type(v).__name__ not in ('ndarray', 'ArrayImpl') or not v.shape: return ''\n"
    "    return '%s %s' % ('x'.join(map(str, v.shape)), kind)\n"
    "def nested(code):\n"
    "    yield code\n"
    "    for c in code.co_consts:\n"
    "        if type(c) is types.CodeType: yield from nested(c)\n"
    "def collects(codes, name):\n" /* that code only adds to it, as to a record of what was traced */
    "    if not any(adds & set(c.co_names) for c in codes): return False\n"
    "    out = []\n"
    "    for c in codes:\n"
    "        told = list(__import__('dis').get_instructions(c))\n"
    "        out += [y.argval for x, y in zip(told, told[1:]) if x.argval == name.rpartition('.')[2] and x.opname in\n"
    "                ('LOAD_GLOBAL', 'LOAD_NAME', 'LOAD_DEREF', 'LOAD_ATTR')]\n"
    "    return out != [] and all(type(x) is str and x in adds for x in out)\n"
    "adds = {'append', 'add', 'extend', 'update', 'setdefault'}\n"
    "def fields(name, v):\n" /* of a value that is none itself: a dictionary, an object */
    "    if isinstance(v, tuple) and hasattr(v, '_asdict'): v = types.SimpleNamespace(**v._asdict())\n"
    "    elif type(v) is dict:\n"
    "        return [('%s[%r]' % (name, k), x) for k, x in list(v.items())[:32] if type(k) is str]\n"
    "    elif isinstance(v, (type, types.ModuleType)) or library(getattr(sys.modules.get(type(v).__module__), "
    "'__file__', None) or '/jax/_src/'):\n"
    "        return []\n"
    "    d = getattr(v, '__dict__', None)\n"
    "    return [(name + '.' + k, x) for k, x in list(d.items())[:32]] if type(d) is dict else []\n"
    "def values(fun):\n"
    "    todo, met, out = [fun], set(), {}\n"
    "    def take(codes, found):\n"
    "        for k, x in found:\n"
    "            if plain(x) or size(x) and not collects(codes, k): out[k] = x\n"
    "    while todo and len(met) < 32:\n"
    "        f = todo.pop(0)\n"
    "        if id(f) in met: continue\n"
    "        met.add(id(f))\n"
    "        if type(f) is types.MethodType:\n"
    "            todo.append(f.__func__)\n"
    "            code = getattr(f.__func__, '__code__', None)\n"
    "            take(list(nested(code)) if code else [], fields('self', f.__self__))\n"
    "        elif type(f) is functools.partial:\n"
    "            todo.append(f.func)\n"
    "            take([], f.keywords.items())\n"
    "        elif type(f) is types.FunctionType:\n"
    "            if f.__dict__.get('__wrapped__'): todo.append(f.__wrapped__)\n"
    "            found = []\n"
    "            for k, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):\n"
    "                try: found.append((k, cell.cell_contents))\n"
    "                except ValueError: pass\n"
    "            if not library(f.__code__.co_filename):\n"
    "                codes = list(nested(f.__code__))\n"
    "                found += [(k, f.__globals__[k]) for c in codes for k in c.co_names if k in f.__globals__]\n"
    "                take(codes, found)\n"
    "                for k, x in found: take(codes, () if plain(x) else fields(k, x))\n"
    "            todo += [x for k, x in found if type(x) in (types.FunctionType, functools.partial, types.MethodType)\n"
    "                     or type(x).__name__ == 'PjitFunction']\n"
    "        elif type(f).__name__ == 'PjitFunction': todo.append(getattr(f, '__wrapped__', None))\n"
    "    return out\n"
    "''', '<xlane>', 'exec'), __import__('sys').modules['_xlane'].__dict__)\n";

static const char guard_preload_call[] =
    "exec(compile('''\n"
    "def static(name, v):\n"
    "    if plain(v): return [(name, 'value', repr(v))]\n"
    "    out = [(k, 'value', repr(x)) for k, x in fields(name, v) if plain(x)]\n"
    "    kind = 'anew' if anew(v) else 'parts' if isinstance(v, tuple) and any(map(anew, v)) else 'object'\n"
    "    return out + [(name, kind, '%s %d' % (type(v).__name__, hash(v)))]\n"
    "def anew(v): return type(v).__hash__ is object.__hash__ or type(v) in (types.FunctionType, functools.partial)\n"
    "def call():\n"
    "    f = sys._getframe(1)\n"
    "    while f is not None and not (f.f_code.co_name == 'cache_miss' and '/jax/_src/' in f.f_code.co_filename):\n"
    "        f = f.f_back\n"
    "    if f is None: return ''\n"
    "    v = f.f_locals\n"
    "    fun, info, args, kwargs = v['fun'], v['jit_info'], v['args'], v['kwargs']\n"
    "    rows = [('cleared', '', str(cleared.times)), ('form', '%d' % len(args), ', '.join(sorted(kwargs)))]\n"
    "    try: named = __import__('inspect').signature(fun).parameters\n"
    "    except (TypeError, ValueError): named = {}\n"
    "    names = list(named)\n"
    "    name = lambda i: names[i] if i < len(names) else 'argument %d' % i\n"
    "    wrapped = codes(fun)[1] is None\n" /* in a library's function, which has arguments of its own */
    "    fixed = {i + len(args) if i < 0 else i for i in info.static_argnums or ()}\n"
    "    passed = [(name(i), x) for i, x in enumerate(args) if i not in fixed]\n"
    "    passed += [(k, x) for k, x in sorted(kwargs.items()) if k not in (info.static_argnames or ())]\n"
    "    try: rows += weak(passed)\n"
    "    except Exception: pass\n"
    "    try: rows += trees(wrapped, passed, [args[i] for i in sorted(fixed) if i < len(args)])\n"
    "    except Exception: pass\n"
    "    for i in () if wrapped else sorted(fixed):\n"
    "        if i < len(args): rows += static(name(i), args[i])\n"
    "    for k in info.static_argnames or ():\n"
    "        if k in kwargs: rows += static(k, kwargs[k])\n"
    "    try: rows += [] if wrapped else [r for k, x in passed[:32] for r in static_fields(k, x)][:64]\n"
    "    except Exception: pass\n"
    "    left = {name(i) for i in fixed if i < len(names)} | set(info.static_argnames or ())\n"
    "    left = () if wrapped else left & set(named) - set(kwargs) - set(names[:len(args)])\n"
    "    rows += [(k, 'value', repr(named[k].default)) for k in sorted(left) if plain(named[k].default)]\n"
    "    try:\n"
    "        inner = filter_frame(fun, f)\n"
    "        found, names = filter_call(fun, inner) if inner else ([], renamed(fun, named, len(args)))\n"
    "    except Exception: found, names = [], []\n"
    "    around = list(values(unfiltered(fun, f)).items())\n"
    "    rows += [(k, 'taken', repr(x)) for k, x in around if plain(x)][:64]\n"
    "    rows += [(k, 'held', size(x)) for k, x in around if not plain(x) and size(x)][:32]\n"
    "    rows += found + names\n"
    "    return chr(10).join(chr(9).join(r) for r in rows if not any(c in s for s in r for c in (chr(9), chr(10))))\n"
    "''', '<xlane>', 'exec'), __import__('sys').modules['_xlane'].__dict__)\n";

static const char guard_preload_names[] =
    "exec(compile('''\n"
    "def filter_frame(fun, f):\n" /* the call, where equinox.filter_jit made the function */
    "    file = getattr(fun, '__code__', who.__code__).co_filename\n"
    "    if not file.endswith('/equinox/_jit.py'): return None\n"
    "    while f and (f.f_code.co_name, f.f_code.co_filename) != ('_call', file): f = f.f_back\n"
    "    return f\n"
    "def static_fields(name, v):\n" /* of a dataclass that is a tree: those without arrays in them */
    "    names, tree = getattr(type(v), '__dataclass_fields__', ()), sys.modules['jax'].tree_util\n"
    "    paths = [tree.keystr(p) for p, _ in tree.tree_flatten_with_path(v)[0]] if names else ['']\n"
    "    if '' in paths: return\n" /* it is none */
    "    for k in names:\n"
    "        x, at = getattr(v, k, None), '.' + k\n"
    "        if any(p == at or p.startswith((at + '.', at + '[')) for p in paths): continue\n"
    "        try: row = ('field', repr(x)) if plain(x) else ('field-object', '%s %d' % (type(x).__name__, hash(x)))\n"
    "        except Exception: continue\n"
    "        yield name + at, *row\n"
    "def unfiltered(fun, f):\n" /* what it was given */
    "    f = filter_frame(fun, f)\n"
    "    return f.f_locals['jit_wrapper'].__wrapped__ if f else fun\n"
    "def renamed(fun, named, n):\n" /* what a wrapper calls args[i] */
    "    rest = [i for i, p in enumerate(named.values()) if p.kind == p.VAR_POSITIONAL and p.name == 'args']\n"
    "    who = getattr(fun, '__name__', '')\n"
    "    return [('argument %d of %s()' % (i + 1, who), 'leaves', 'args %d 1' % (i - rest[0])) for i in range(n)\n"
    "            if i >= rest[0]][:64] if rest and who else []\n"
    "def filter_call(fun, f):\n" /* a call of equinox.filter_jit: its values that are no arrays, and names */
    "    tree, w = sys.modules['jax'].tree_util, f.f_locals['jit_wrapper']\n"
    "    call, names, rows, more = w._signature.bind(*f.f_locals['args'], **f.f_locals['kwargs']), [], [], []\n"
    "    for p in w._signature.parameters.values():\n"
    "        n = len(call.args) - len(names)\n"
    "        if p.kind == p.VAR_POSITIONAL:\n"
    "            at = len(names) + 1\n"
    "            names += ['argument %d of %s()' % (at + i, fun.__name__) for i in range(n)]\n"
    "        elif n > 0: names.append(p.name)\n"
    "    def whose(base, path):\n" /* a name of the user's, and what is left of the path */
    "        if base == 'first': return names[0], path\n"
    "        if base == 'fun': return ('self', path[1:]) if '__self__' in str(path[:1]) else (fun.__name__, path)\n"
    "        return names[1 + path[1].idx] if path[0].idx == 0 else path[1].key, path[2:]\n"
    "    for base, gone, v in (('first', w.donate_first, call.args[:1]), ('fun', w.donate_rest, w.__wrapped__),\n"
    "                          ('rest', w.donate_rest, (call.args[1:], call.kwargs))):\n"
    "        spans = []\n"
    "        for i, (path, x) in enumerate(tree.tree_flatten_with_path(v)[0]):\n"
    "            name, path = whose(base, path[1:] if base == 'first' else path)\n"
    "            path = tree.keystr(path)\n"
    "            if not spans or spans[-1][0] != name: spans.append((name, i, []))\n"
    "            spans[-1][2].append(path or '.')\n"
    "            if plain(x) and x is not None:\n"
    "                rows.append((name + path, 'Python ' + type(x).__name__, repr(x)))\n"
    "        for name, i, paths in spans:\n"
    "            told = ' '.join(paths)\n"
    "            told = '' if told.count(' ') >= len(paths) or len(told) > 2500 else ' ' + told\n"
    "            label = 'dynamic_%s[%r] %d %d' % ('donate' if gone else 'nodonate', base, i, len(paths))\n"
    "            more.append((name, 'leaves', label + told))\n"
    "    return rows[:64], more\n"
    "''', '<xlane>', 'exec'), __import__('sys').modules['_xlane'].__dict__)\n";

static const char guard_preload_reads[] =
    "exec(compile('''\n"
    "def place(f):\n" /* the user's line that an array is read or waited for on, as bytes that stay where they are */
    "    while f is not None:\n"
    "        path = f.f_code.co_filename\n"
    "        if path not in ours: ours[path] = not (library(path) or path == '<xlane>')\n"
    "        if ours[path]: break\n"
    "        f = f.f_back\n"
    "    if f is None: return None\n"
    "    at = path, f.f_lineno\n"
    "    if at not in places and len(places) < 1024:\n"
    "        import ctypes\n"
    "        places[at] = ('%s:%d' % at).encode()\n"
    "        ctypes.pythonapi.Py_IncRef(ctypes.py_object(places[at]))\n"
    "    return places.get(at)\n"
    "ours, places, reading = {}, {}, []\n"
    "def located(real, waits):\n"
    "    def call(*args, **more):\n"
    "        try:\n"
    "            if not reading: reading.append(guard().xlane_guard_reading)\n"
    "            reading[0](place(sys._getframe(1)), waits)\n"
    "        except Exception: return real(*args, **more)\n"
    "        try: return real(*args, **more)\n"
    "        finally: reading[0](None, 0)\n"
    "    call.__name__, call.__doc__ = real.__name__, real.__doc__\n"
    "    return call\n"
    "def array(module):\n" /* where a value comes to the host, and where the host waits for one */
    "    kind, xc = module.ArrayImpl, module.xc\n"
    "    known = kind._value.fget\n"
    "    value = located(known, 0)\n"
    "    kind._value = property(lambda x: value(x) if x._npy_value is None else known(x))\n"
    "    kind.block_until_ready = located(kind.block_until_ready, 1)\n"
    "    xc.batched_block_until_ready = located(xc.batched_block_until_ready, 1)\n"
    "''', '<xlane>', 'exec'), __import__('sys').modules['_xlane'].__dict__)\n";

static const char guard_preload_compiler[] =
    "exec(compile('''\n"
    "def tree(name, v, more=()):\n" /* its hash leaves out static fields, so what it is written as */
    "    text = str(sys.modules['jax'].tree_util.tree_structure(v))\n"
    "    leaf = text == 'PyTreeDef(*)'\n"
    "    kind = 'leaf' if leaf else 'None' if v is None else type(v).__name__\n"
    "    return 'passed ' + name, 'tree', '%s %d' % (kind, hash((text, *map(str, more))))\n"
    "def trees(wrapped, passed, fixed):\n" /* of arguments that are not static */
    "    if wrapped: return [tree('', [x for _, x in passed], fixed)]\n"
    "    return [tree(k, x) for k, x in passed[:32]]\n"
    "def weak(passed):\n" /* arguments of a weak type, by the names that they have in the program */
    "    f, kinds, tree = sys._getframe(1), {}, sys.modules['jax'].tree_util\n"
    "    while f.f_code.co_name != 'from_hlo': f = f.f_back\n"
    "    info = f.f_locals['all_args_info']\n"
    "    found = [n for n, v in zip(info.debug_info.arg_names, info.in_avals) if v.weak_type]\n"
    "    for k, v in passed if found else ():\n"
    "        for path, x in tree.tree_flatten_with_path(v)[0]:\n"
    "            number = type(x) in (bool, int, float, complex)\n"
    "            kinds[k + tree.keystr(path)] = 'a Python number' if number else 'a weakly typed array'\n"
    "    rows = [('weak ' + n, 'weak', kinds.get(n, '')) for n in found]\n"
    "    return [('weak types', 'weak', 'known')] + rows if sum(map(len, found)) < 1000 else []\n"
    "def told_call():\n"
    "    try: text = call()\n"
    "    except Exception: return ''\n"
    "    return text if len(text) < 8000 else text[:8000].rpartition(chr(10))[0]\n" /* whole lines */
    "def guard():\n"
    "    import ctypes, os\n"
    "    return ctypes.PyDLL(os.environ['XLANE_GUARD_LIBRARY'], os.RTLD_NOLOAD | os.RTLD_NOW)\n"
    "def settings(config):\n" /* those that JAX looks its programs up by */
    "    states, words = getattr(config, 'config_states', {}), []\n"
    "    try: names = config.config_ext.trace_context_names()\n"
    "    except Exception: names = ['jax_' + n for n in ('enable_x64', 'numpy_dtype_promotion', "
    "'default_matmul_precision',\n"
    "                               'numpy_rank_promotion', 'threefry_partitionable', 'softmax_custom_jvp')]\n"
    "    for n in filter(states.__contains__, names):\n"
    "        value = states[n].value\n"
    "        words.append('%s=%s' % (n, '_'.join(str(getattr(value, 'value', value)).split())[:60]))\n"
    "    return ' '.join(words)\n"
    "def searches(config):\n" /* JAX has met a NaN and looks for the op that made it */
    "    if not (config.debug_nans.value or config.debug_infs.value): return False\n"
    "    f = sys._getframe(1)\n"
    "    while f is not None and 'nan_check' not in f.f_code.co_name: f = f.f_back\n"
    "    return f is not None\n"
    "def dispatch(module):\n" /* reads for that search are none of the user's */
    "    real = module._check_special\n"
    "    def _check_special(*args, **more):\n"
    "        tell = lambda change: None\n"
    "        try: tell = guard().xlane_guard_checks\n"
    "        except Exception: pass\n"
    "        tell(1)\n"
    "        try: return real(*args, **more)\n"
    "        finally: tell(-1)\n"
    "    module._check_special = _check_special\n"
    "def compiler(module):\n"
    "    real = module.compile_or_get_cached\n"
    "    def compile_or_get_cached(backend, computation, *args, **more):\n"
    "        number = 0\n"
    "        try:\n"
    "            tell, (function, own_name, qualified, lent) = guard().xlane_guard_function, who()\n"
    "            name = str(computation.operation.attributes['sym_name']).strip(chr(34))\n"
    "            x64 = getattr(getattr(config, 'enable_x64', None), 'value', None)\n"
    "            owner = (3 if searches(config) else 2) if function is None else 1 if function else 0\n"
    "            if name == 'jit__unnamed_function': own_name = qualified\n" /* an object with a __call__ */
    "            elif name != 'jit__fun' and name[4:] not in lent and (own_name.rstrip('_') == own_name or 'jit_' "
    "+ own_name.rstrip('_') != "
    "name):\n"
    "                own_name = ''\n" /* of pmap's each is called so, and JAX cuts underscores off the end */
    "            number = tell(name.encode(), (function or '').encode(), own_name.encode(), "
    "settings(config).encode(),\n"
    "                          told_call().encode() if function is not None else b'', 0 if x64 is None else 1 + "
    "bool(x64), owner)\n"
    "        except Exception: pass\n"
    "        try: return real(backend, computation, *args, **more)\n"
    "        finally:\n"
    "            if number: tell(None, None, None, None, None, number, 0)\n"
    "    module.compile_or_get_cached = compile_or_get_cached\n"
    "    from jax._src import config, traceback_util, util\n"
    "    try: util.register_cache(cleared, 'xlane')\n"
    "    except Exception: pass\n"
    "    traceback_util.register_exclusion('<xlane>')\n" /* what JAX leaves out of the user's tracebacks */
    "''', '<xlane>', 'exec'), __import__('sys').modules['_xlane'].__dict__)\n";

#endif
